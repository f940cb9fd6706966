"""Sizes of values: what each node makes of known sizes, in every graph."""

from __future__ import annotations

import flow_models as flow
import numpy as np
import onnx.reference
import pytest
from onnx import helper

from mutcache.alias import alias_classes
from mutcache.decode import decode
from mutcache.model import TensorType
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, NodeProto, TensorProto
from mutcache.sized import SizedGraph
from mutcache.sizes import byte_size
from mutcache.sizing import size_model
from mutcache_conformance.cases.builder import initializer, model, node, tensor

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def sized(made: ModelProto, **dims: int) -> SizedGraph:
    decoded = decode(made)
    return size_model(decoded, alias_classes(decoded), dims)


def dims(graph: SizedGraph, name: str) -> tuple[object, ...] | None:
    known = graph.types[name]
    return None if known is None else known.dims


def integers(name: str, *values: int) -> TensorProto:
    return initializer(name, INT64, [len(values)], np.array(values, np.int64).tobytes())


@pytest.mark.parametrize(
    ("elem_type", "shape", "size"),
    [
        (FLOAT, (2, 3), 24),
        (FLOAT, (), 4),
        (FLOAT, (0, 7), 0),
        (TensorProto.BOOL, (5,), 5),
        (TensorProto.BFLOAT16, (5,), 10),
        (TensorProto.FLOAT8E4M3FN, (5,), 5),
        (TensorProto.INT4, (5,), 3),  # two to a byte, the last byte half full
        (TensorProto.INT2, (5,), 2),
        (TensorProto.COMPLEX128, (2,), 32),
        (TensorProto.STRING, (2,), None),
        (FLOAT, (2, None), None),
        (FLOAT, None, None),
        (0, (2,), None),
        (999, (2,), None),
    ],
)
def test_bytes(elem_type: int, shape: tuple[int | None, ...] | None, size: int | None) -> None:
    assert byte_size(TensorType(elem_type, shape)) == size


def test_shapes_computed_from_shapes() -> None:
    made = model(
        [tensor("x", FLOAT, ["batch", "n", 6])],
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "one"], ["n"]),  # [n]
            node("Mul", ["n", "two"], ["twice"]),
            node("Concat", ["minus", "twice"], ["target"], {"axis": 0}),
            node("Reshape", ["x", "target"], ["y"]),
            node("Squeeze", ["twice"], ["count"]),
            node("Range", ["zero", "count", "step"], ["r"]),
        ],
        [tensor("y", FLOAT, [None, None]), tensor("r", INT64, [None])],
        initializers=[
            integers("one", 1),
            integers("two", 2),
            integers("minus", -1),
            initializer("zero", INT64, [], bytes(8)),
            initializer("step", INT64, [], np.int64(1).tobytes()),
        ],
    )
    graph = sized(made, batch=4, n=5)
    assert dims(graph, "y") == (4 * 5 * 6 // 10, 10)
    assert dims(graph, "r") == (10,)


def test_an_initializer_that_is_an_input_is_no_constant() -> None:
    made = model(
        [tensor("x", FLOAT, [6]), tensor("target", INT64, [2])],
        [node("Reshape", ["x", "target"], ["y"])],
        [tensor("y", FLOAT, [None, None])],
        initializers=[integers("target", 2, 3)],
    )
    assert dims(sized(made), "y") == (None, None)


def test_only_the_branch_that_is_taken_counts() -> None:
    made = flow.graph(
        [
            flow.branch(
                ["b"], flow.body([flow.negated("x", "t")], flow.value("t")),
                flow.body([node("Neg", ["r"], ["e"])], tensor("e", FLOAT, [2, 4])),
            )
        ],
        tensor("b", FLOAT, [None, 4]),
    )  # fmt: skip
    either = sized(made)
    assert set(either.bodies[0]) == {"then_branch", "else_branch"}
    assert dims(either, "b") == (None, 4)
    del made.graph.input[-3]  # the condition
    made.graph.initializer.append(initializer("k", BOOL, [], b"\0"))
    taken = sized(made)
    assert set(taken.bodies[0]) == {"else_branch"}
    assert dims(taken, "b") == (2, 4)


def test_a_carried_value_that_grows_has_no_size() -> None:
    body = [node("Concat", ["f", "f"], ["n"], {"axis": 0})]
    loop = flow.loop(["x"], ["y"], body, tensor("n", FLOAT, [None, 4]), formals=[tensor("f", FLOAT, [None, 4])])
    graph = sized(flow.graph([loop], tensor("y", FLOAT, [None, 4])))
    assert dims(graph, "y") == (None, 4)
    assert dims(graph.bodies[0]["body"], "n") == (None, 4)


def test_a_node_that_cannot_run_inside_a_branch_is_no_error() -> None:
    bad = flow.body([node("MatMul", ["x", "x"], ["t"])], tensor("t", FLOAT, [None, None]))
    good = flow.body([flow.negated("x", "e")], flow.value("e"))
    assert dims(sized(flow.graph([flow.branch(["b"], bad, good)], tensor("b", FLOAT, [None, None]))), "b") == (
        None,
        None,
    )


def test_a_body_takes_attributes_from_the_call_and_from_the_function() -> None:
    split = NodeProto(op_type="Transpose", input=["t"], output=["t1"])
    split.attribute.add(name="perm", type=AttributeProto.INTS, ref_attr_name="order")
    turned = flow.function("turned", ["t"], ["t1"], [split])
    turned.attribute_proto.append(AttributeProto.FromString(helper.make_attribute("order", [1, 0]).SerializeToString()))
    straight = flow.call("turned", ["x"], ["b"])
    straight.attribute.append(AttributeProto.FromString(helper.make_attribute("order", [0, 1]).SerializeToString()))
    made = flow.graph(
        [flow.call("turned", ["x"], ["a"]), straight],
        tensor("a", FLOAT, [None, None]), tensor("b", FLOAT, [None, None]), functions=[turned],
    )  # fmt: skip
    graph = sized(made)
    assert dims(graph, "a") == (4, 8)
    assert dims(graph, "b") == (8, 4)


def test_functions_that_call_functions_are_visited_once_for_each_kind_of_call() -> None:
    depth = 40  # 2 ** 40 calls
    functions = [flow.function("f0", ["t"], ["u"], [flow.negated("t", "u")])]
    functions += [
        flow.function(
            f"f{n}", ["t"], ["u"], [flow.call(f"f{n - 1}", ["t"], ["s"]), flow.call(f"f{n - 1}", ["s"], ["u"])]
        )
        for n in range(1, depth)
    ]
    made = flow.graph([flow.call(f"f{depth - 1}", ["x"], ["y"])], flow.value("y"), functions=functions)
    graph = sized(made)
    assert dims(graph, "y") == (8, 4)
    assert len(list(graph.walk())) == depth + 1


def test_operators_that_nobody_knows() -> None:
    made = model(
        [tensor("x", FLOAT, [3])],
        [node("Wonder", ["x"], ["y"], domain="vendor"), node("Neg", ["y"], ["z"])],
        [tensor("z", FLOAT, [None])],
        value_info=[tensor("y", FLOAT, [5])],
    )
    made.opset_import.add(domain="vendor", version=1)
    assert dims(sized(made), "z") == (5,)  # what the model declares is believed


def test_the_sizes_of_a_run() -> None:
    """Every value of a graph of common operators has the size that ONNX's reference computes."""
    made = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
                helper.make_node("MatMul", ["x", "t"], ["scores"]),
                helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
                helper.make_node("Unsqueeze", ["p", "zero"], ["end"]),
                helper.make_node("Slice", ["x", "zero", "end", "one"], ["head"]),
                helper.make_node("Add", ["end", "one"], ["next"]),
                helper.make_node("Concat", ["one", "next", "minus"], ["target"], axis=0),
                helper.make_node("Slice", ["x", "zero", "next", "one"], ["longer"]),
                helper.make_node("Reshape", ["longer", "target"], ["shaped"]),
                helper.make_node("Split", ["x"], ["left", "right"], axis=2, num_outputs=2),
                helper.make_node("ReduceSum", ["left", "one"], ["sum"], keepdims=0),
                helper.make_node("Shape", ["head"], ["shape"], start=1),
                helper.make_node("ConstantOfShape", ["shape"], ["filled"]),
                helper.make_node("Cast", ["p"], ["small"], to=TensorProto.INT32),
            ],
            "g",
            [
                helper.make_tensor_value_info("x", FLOAT, ["batch", "n", 8]),
                helper.make_tensor_value_info("p", INT64, []),
            ],
            [],
            [helper.make_tensor(name, INT64, [1], [value]) for name, value in (("zero", 0), ("one", 1), ("minus", -1))],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    names = [name for each in made.graph.node for name in each.output]
    graph = sized(ModelProto.FromString(made.SerializeToString()), batch=1, n=6, p=3)
    made.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    feeds = {"x": np.zeros((1, 6, 8), np.float32), "p": np.array(3)}
    results = onnx.reference.ReferenceEvaluator(made).run(None, feeds)
    assert {name: dims(graph, name) for name in names} == {
        name: np.shape(result) for name, result in zip(names, results, strict=True)
    }

"""Constants: which positions are the same in every run."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
from flow_models import body, branch, call, function, graph, loop, scalar
from hypothesis import given, settings
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mutcache.alias import alias_classes
from mutcache.decode import decode
from mutcache.folding import Constant
from mutcache.frames import Frame
from mutcache.proto import to_onnx
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, NodeProto, TensorProto
from mutcache.shapes import ShapesContext
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def integers(name: str, value: object) -> TensorProto:
    array = np.array(value, "<i8")
    return initializer(name, INT64, array.shape, array.tobytes())


def shapes_of(made: ModelProto, *, base: bool = True) -> ShapesContext:
    decoded = decode(made)
    return ShapesContext(decoded, alias_classes(decoded), base=base)


def straight(*nodes: NodeProto, **initializers: object) -> ModelProto:
    return model(
        [tensor("x", FLOAT, (2, "n", 4)), scalar("given")],
        nodes,
        [],
        initializers=[integers(name, value) for name, value in initializers.items()],
    )


def constant(made: ModelProto, name: str, frame: Frame | None = None) -> object:
    value: Constant | None = shapes_of(made).constant(name, frame)
    return None if value is None else value.tolist()


@pytest.mark.parametrize(
    ("nodes", "known"),
    [
        ([node("Add", ["three", "four"], ["y"])], 7),
        ([node("Sub", ["three", "four"], ["y"])], -1),
        ([node("Mul", ["three", "four"], ["y"])], 12),
        ([node("Neg", ["three"], ["y"])], -3),
        ([node("Identity", ["three"], ["y"])], 3),
        ([node("Max", ["three", "four"], ["y"])], 4),
        ([node("Cast", ["three"], ["y"], {"to": TensorProto.INT32})], 3),
        ([node("Cast", ["three"], ["y"], {"to": FLOAT})], None),
        ([node("Gather", ["vector", "one"], ["y"])], 6),
        ([node("Gather", ["vector", "three"], ["y"])], None),
        ([node("Unsqueeze", ["three", "zeros"], ["y"])], [3]),
        ([node("Unsqueeze", ["three", "zeros"], ["u"]), node("Squeeze", ["u"], ["y"])], 3),
        ([node("Slice", ["vector", "zeros", "ones"], ["y"])], [5]),
        ([node("Concat", ["vector", "ones"], ["y"], {"axis": 0})], [5, 6, 1]),
        ([node("Shape", ["x"], ["y"])], None),
        ([node("Shape", ["x"], ["y"], {"start": 2})], [4]),
        ([node("Shape", ["x"], ["y"], {"end": 1})], [2]),
        ([node("Shape", ["x"], ["s"], {"start": -1}), node("Squeeze", ["s"], ["y"])], 4),
        ([node("Size", ["x"], ["y"])], None),
        ([node("Size", ["vector"], ["y"])], 2),
        ([node("Add", ["three", "given"], ["y"])], None),
        ([node("Div", ["four", "three"], ["y"])], None),
        ([node("Add", ["three", "nowhere"], ["y"])], None),
        ([node("Add", ["y", "three"], ["y"])], None),
        ([node("Add", ["three", "z"], ["y"]), node("Add", ["three", "y"], ["z"])], None),
        ([node("Add", ["three"], ["y"])], None),
        ([node("Add", ["three", "four"], ["y"], domain="vendor")], None),
        ([node("Concat", ["vector"] * 600, ["y"], {"axis": 0})], None),
        ([node("Reshape", ["vector", "three"], ["y"])], None),
        ([node("Constant", [], ["y"], {"value_int": 9})], 9),
        ([NodeProto(op_type="Constant", output=["y"])], None),
    ],
    ids=str,
)
def test_integer_arithmetic_is_folded(nodes: Sequence[NodeProto], known: object) -> None:
    made = straight(*nodes, three=3, four=4, one=1, vector=[5, 6], zeros=[0], ones=[1])
    assert constant(made, "y") == known


BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(BINARY)), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=6))
def test_chains_agree_with_an_evaluation(steps: list[tuple[str, int]]) -> None:
    made = straight(
        *(node(op_type, [f"v{number}", f"k{number}"], [f"v{number + 1}"]) for number, (op_type, _) in enumerate(steps)),
        v0=5,
        **{f"k{number}": value for number, (_, value) in enumerate(steps)},
    )
    made.graph.output.append(scalar(f"v{len(steps)}"))
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(to_onnx(made)).run(None, {"x": np.zeros((2, 1, 4)), "given": np.array(0)})
    assert constant(made, f"v{len(steps)}") == expected


def test_long_chains_end() -> None:
    count = 20_000
    nodes = [node("Add", [f"v{number}", "one"], [f"v{number + 1}"]) for number in range(count)]
    made = straight(*reversed(nodes), v0=0, one=1)
    decoded = decode(made)
    value = ShapesContext(decoded, alias_classes(decoded), base=False).constant(f"v{count}")
    assert value is not None
    assert int(value) == count


def test_what_a_caller_may_replace_is_no_constant() -> None:
    made = straight(node("Identity", ["three"], ["y"]), three=3)
    made.graph.input.append(scalar("three"))
    assert constant(made, "y") is None


def test_large_tensors_are_not_read() -> None:
    made = straight(node("Identity", ["big"], ["y"]), big=np.zeros(1 << 20))
    assert constant(made, "y") is None


@pytest.mark.parametrize(
    "tensor_proto",
    [
        TensorProto(name="at", data_type=INT64, dims=[1 << 40, 1 << 40]),
        TensorProto(name="at", data_type=INT64, dims=[-1]),
        TensorProto(name="at", data_type=INT64, raw_data=b"123"),
        TensorProto(name="at", data_type=99),
        TensorProto(name="at", data_type=INT64, data_location=TensorProto.EXTERNAL),
    ],
    ids=str,
)
def test_garbage_is_no_constant(tensor_proto: TensorProto) -> None:
    made = straight()
    made.graph.initializer.append(tensor_proto)
    assert shapes_of(made, base=False).constant("at") is None


def inner_frame(shapes: ShapesContext) -> Frame:
    return shapes.frames[-1]


def known_inside(made: ModelProto, name: str) -> object:
    shapes = shapes_of(made)
    value = shapes.constant(name, inner_frame(shapes))
    return None if value is None else value.tolist()


def with_integers(made: ModelProto, **values: object) -> ModelProto:
    made.graph.initializer.extend(integers(name, value) for name, value in values.items())
    return made


def test_captures_are_followed_out() -> None:
    then = body([update("c", "r", "at", "t")], tensor("t", FLOAT, None, alias_of="c"))
    otherwise = body([aliased(node("Identity", ["c"], ["e"]))], tensor("e", FLOAT, None, alias_of="c"))
    made = graph([branch(["out"], then, otherwise)], tensor("out", FLOAT, [8, 4], alias_of="c"))
    assert known_inside(with_integers(made, at=5), "at") == 5


def carried(step: NodeProto, result: str) -> ModelProto:
    made = loop(
        ["c", "at"],
        ["out", "last"],
        [update("v", "r", "q", "u"), step],
        tensor("u", FLOAT, None, alias_of="v"),
        scalar(result),
        formals=[tensor("v", FLOAT, None, mutable=True), scalar("q")],
    )
    return with_integers(graph([made], tensor("out", FLOAT, [8, 4], alias_of="c")), at=5, one=1)


def test_a_carried_value_is_constant_if_the_body_returns_it_as_it_came() -> None:
    assert known_inside(carried(node("Identity", ["q"], ["q1"]), "q1"), "q") == 5
    assert known_inside(carried(node("Add", ["q", "one"], ["q1"]), "q1"), "q") is None
    assert known_inside(carried(node("Identity", ["q"], ["q1"]), "q1"), "i") is None


def test_arguments_and_attributes_reach_functions() -> None:
    write = function(
        "write",
        ["c", "r", "p"],
        ["u"],
        [NodeProto(op_type="Constant", output=["k"]), node("Add", ["p", "k"], ["q"]), update("c", "r", "q", "u")],
        tensor("c", FLOAT, None, mutable=True),
        tensor("u", FLOAT, None, alias_of="c"),
    )
    write.node[0].attribute.add(name="value_int", type=AttributeProto.INT, ref_attr_name="offset")
    write.attribute.append("offset")
    made = graph(
        [call("write", ["c", "r", "at"], ["out"])], tensor("out", FLOAT, [8, 4], alias_of="c"), functions=[write]
    )
    with_integers(made, at=2)
    made.graph.node[0].attribute.add(name="offset", type=AttributeProto.INT, i=3)
    assert known_inside(made, "q") == 5
    del made.graph.node[0].attribute[:]
    assert known_inside(made, "q") is None
    del made.functions[0].attribute[:]
    made.functions[0].attribute_proto.append(
        AttributeProto.FromString(helper.make_attribute("offset", 1).SerializeToString())
    )
    assert known_inside(made, "q") == 3


def test_a_constant_node_holds_a_tensor() -> None:
    made = straight(NodeProto(op_type="Constant", output=["y"]))
    value = numpy_helper.from_array(np.array([2, 3]))
    made.graph.node[0].attribute.add(name="value", type=AttributeProto.TENSOR).t.MergeFromString(
        value.SerializeToString()
    )
    assert constant(made, "y") == [2, 3]

"""Inlining: the same values, and annotations that name the caller's values (MC-FLOW-008)."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, checker, helper, parser
from onnx.reference import ReferenceEvaluator

from mutcache.check import check_model
from mutcache.errors import DecodeError, MutcacheError
from mutcache.executor import Session
from mutcache.inline import inline
from mutcache.proto import from_onnx, serialize, to_onnx
from mutcache.proto.onnx_ml import FunctionProto, GraphProto, ModelProto, NodeProto, ValueAliasProto, ValueInfoProto

Array = NDArray[np.float32]

A = np.array([1.0, -2.0, 3.0], np.float32)
B = np.array([0.5, 4.0, -1.0], np.float32)


def mark(node: NodeProto) -> None:
    node.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)


def entry(body: GraphProto | FunctionProto, name: str) -> ValueInfoProto:
    found = [value for value in body.value_info if value.name == name]
    return found[0] if found else body.value_info.add(name=name)


def standard(text: str) -> onnx.ModelProto:
    """A sound model of stock ONNX; its graph has the inputs a and b."""
    model = parser.parse_model(text)
    checker.check_model(model, full_check=True)
    return model


def outputs(model: onnx.ModelProto) -> list[Array]:
    results = ReferenceEvaluator(model).run(None, {"a": A, "b": B})
    assert isinstance(results, list)
    return results


HEAD = '<ir_version: 10, opset_import: ["": 21, "f": 1]> g (float[3] a, float[3] b) => '

STANDARD = {
    "two calls, names that collide": f"""{HEAD} (float[3] y, float[3] t)
        {{ t = f.twice(a) u = f.twice(t) y = Add(u, b) }}
        <domain: "f", opset_import: ["": 21]> twice (a) => (y) {{ t = Neg(a) u = Neg(t) y = Add(u, a) }}""",
    "nested functions": f"""{HEAD} (float[3] y) {{ y = f.outer(b, a) }}
        <domain: "f", opset_import: ["": 21]> inner (b, a) => (y) {{ t = Sub(a, b) y = Mul(t, a) }}
        <domain: "f", opset_import: ["": 21, "f": 1]>
        outer (a, b) => (y) {{ t = f.inner(b, a) u = f.inner(t, t) y = Sub(u, a) }}""",
    "an absent argument and an unnamed output": f"""{HEAD} (float[3] y)
        {{ _unused, y = f.clip(a, , b) }}
        <domain: "f", opset_import: ["": 21]>
        clip (x, low, other) => (first, second) {{ first = Neg(other) second = Clip(x, low) }}""",
    "arguments handed back": f"""{HEAD} (float[3] y, float[3] z)
        {{ p, z = f.swap(a, b) q, r = f.swap(p, z) y = Sub(q, r) }}
        <domain: "f", opset_import: ["": 21]> swap (x, y) => (y, x) {{ unused = Neg(x) }}""",
    "calls in a branch, and a handed name that it captures": f"""{HEAD} (float[3] y)
        {{ p = f.same(a) t = ReduceSum<keepdims = 0>(p) zero = Constant<value_float = 0.0>() c = Greater(t, zero)
           y = If (c) <
             then_branch = then_graph () => (float[3] then_out) {{ u = f.twice(p) then_out = Add(u, b) }},
             else_branch = else_graph () => (float[3] else_out) {{ u = f.twice(b) else_out = f.same(u) }}> }}
        <domain: "f", opset_import: ["": 21]> same (x) => (x) {{ unused = Neg(x) }}
        <domain: "f", opset_import: ["": 21]> twice (x) => (u) {{ p = Neg(x) u = Sub(x, p) }}""",
    "a body with a loop": f"""{HEAD} (float[3] y, float[3] s) {{ s = Neg(a) y = f.power(a, b) }}
        <domain: "f", opset_import: ["": 21]>
        power (x, s) => (y)
        {{ n = Constant<value_int = 3>() t = Constant<value = bool {{1}}>()
           y = Loop (n, t, x) <body = body_graph (int64 i, bool c, float[3] s0) => (bool c2, float[3] s2)
             {{ c2 = Identity(c) p = Mul(s0, x) s2 = Add(p, s) }}> }}""",
}


@pytest.mark.parametrize("text", STANDARD.values(), ids=STANDARD.keys())
def test_values_stay_the_same(text: str) -> None:
    model = standard(text)
    inlined = inline(from_onnx(model))
    assert not inlined.functions
    checker.check_model(to_onnx(inlined), full_check=True)
    for before, after in zip(outputs(model), outputs(to_onnx(inlined)), strict=True):
        np.testing.assert_array_equal(before, after)


def test_attributes_of_a_call_come_before_those_of_the_function() -> None:
    text = f"""{HEAD} (float[1] given, float default, float[1] handed, float[1] handed_default)
        {{ given = f.total<keep: int = 1>(a) default = f.total(a)
           handed = f.hand<k: int = 1>(b) handed_default = f.hand(b) }}
        <domain: "f", opset_import: ["": 21, "f": 1]> hand <k> (x) => (y) {{ y = f.total_or_none<keep: int = @k>(x) }}
        <domain: "f", opset_import: ["": 21]>
        total <keep: int = 0> (x) => (y) {{ y = ReduceSum<keepdims: int = @keep>(x) }}
        <domain: "f", opset_import: ["": 21]>
        total_or_none <keep> (x) => (y) {{ y = ReduceSum<keepdims: int = @keep>(x) }}"""
    inlined = to_onnx(inline(from_onnx(parser.parse_model(text))))
    checker.check_model(inlined, full_check=True)
    # Without a value the operator's own default counts: keepdims = 1.
    assert [result.tolist() for result in outputs(inlined)] == [[2.0], 2.0, [3.5], [3.5]]


def test_a_call_may_name_fewer_outputs() -> None:
    text = f"""{HEAD} (float[3] y) {{ y = f.pair(a) }}
        <domain: "f", opset_import: ["": 21]> pair (x) => (p, q) {{ q = Neg(x) p = Abs(x) }}"""
    inlined = to_onnx(inline(from_onnx(parser.parse_model(text))))
    checker.check_model(inlined, full_check=True)
    assert [result.tolist() for result in outputs(inlined)] == [[1.0, 2.0, 3.0]]


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Functions of two arguments and two results that call those before them; three names for everything."""
    few = st.sampled_from(["a", "b", "t", "t__1"])
    operators = st.sampled_from([("Add", "", 1), ("Sub", "", 1), ("Mul", "", 1)])
    functions: list[onnx.FunctionProto] = []

    def body(known: list[str], callable_functions: int) -> tuple[list[onnx.NodeProto], list[str]]:
        nodes, visible = [], list(known)
        options = [operators]
        if callable_functions:
            options.append(st.integers(0, callable_functions - 1).map(lambda index: (f"f{index}", "f", 2)))
        for _ in range(draw(st.integers(1, 3))):
            op_type, domain, results = draw(st.one_of(options))
            operands = [draw(st.sampled_from(visible)) for _ in range(2)]
            names = []
            for _ in range(results):
                names.append(draw(few.filter(lambda name: name not in visible) | st.just(f"v{len(visible)}")))
                visible.append(names[-1])
            nodes.append(helper.make_node(op_type, operands, names, domain=domain))
        return nodes, visible

    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    for index in range(draw(st.integers(1, 3))):
        nodes, visible = body(["a", "b"], index)
        results = draw(st.lists(st.sampled_from(visible), min_size=2, max_size=2, unique=True))
        functions.append(helper.make_function("f", f"f{index}", ["a", "b"], results, nodes, opsets))
    nodes, visible = body(["a", "b"], len(functions))
    produced = [name for name in visible if name not in ("a", "b")]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor(name, TensorProto.FLOAT, [3]) for name in ("a", "b")],
        [tensor(name, TensorProto.FLOAT, [3]) for name in produced],
    )
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)


@settings(max_examples=60, deadline=None)
@given(models())
def test_law_inlining_changes_no_value(model: onnx.ModelProto) -> None:
    inlined = inline(from_onnx(model))
    checker.check_model(to_onnx(inlined), full_check=True)
    assert inline(inlined) == inlined
    for before, after in zip(outputs(model), outputs(to_onnx(inlined)), strict=True):
        np.testing.assert_array_equal(before, after)


def cache_model() -> ModelProto:
    """Two steps on one cache, each two updates in a function; the middle value and a second step's are in its body."""
    model = from_onnx(
        parser.parse_model(
            """<ir_version: 15, opset_import: ["": 21, "f": 1]>
            g (float[4,2] cache, float[1,2] values, int64 p, int64 tmp) => (float[4,2] final, float[4,2] before)
            { before = Neg(cache) [first] middle = f.step (cache, values, p) final = f.step (middle, values, tmp) }
            <domain: "f", opset_import: ["": 21, "onnx.mutable_cache": 1]>
            step (c, v, at) => (out) <float[4,2] tmp, float[n,2] v>
            { one = Constant<value_int = 1>()
              [update] tmp = onnx.mutable_cache.CacheUpdate(c, v, at) next = Add(at, one)
              same = Identity(tmp) out = onnx.mutable_cache.CacheUpdate(same, v, next) }"""
        )
    )
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    function = model.functions[0]
    for index in (1, 3, 4):
        mark(function.node[index])
    entry(function, "c").access = ValueInfoProto.READ_WRITE
    entry(function, "tmp").alias_of = "c"
    entry(function, "out").alias_of = "tmp"
    return model


def test_annotations_name_the_callers_values() -> None:
    model = cache_model()
    assert check_model(model) == []
    inlined = inline(model)
    assert check_model(inlined) == []
    stated = {value.name: value.alias_of for value in (*inlined.graph.value_info, *inlined.graph.output)}
    assert stated == {"tmp__1": "cache", "middle": "tmp__1", "tmp__2": "middle", "final": "cache", "before": ""}
    assert [value.name for value in inlined.graph.input if value.access == ValueInfoProto.READ_WRITE] == ["cache"]
    assert not any(value.HasField("access") for value in (*inlined.graph.value_info, *inlined.graph.output))
    assert sum(len(node.output_alias) for node in inlined.graph.node) == 6
    assert {opset.domain for opset in inlined.opset_import} == {"", "f", "onnx.mutable_cache"}
    assert [node.name for node in inlined.graph.node if node.op_type == "CacheUpdate"] == [
        "first/update",
        "",
        "update",
        "",
    ]


def test_an_inlined_cache_is_updated_in_place() -> None:
    inlined = inline(cache_model())
    assert check_model(inlined) == []
    cache = np.arange(8, dtype=np.float32).reshape(4, 2)
    values = np.array([[10.0, 20.0]], np.float32)
    expected = cache.copy()
    expected[[0, 1, 2, 3]] = values  # rows p, p + 1, tmp, tmp + 1
    before = -cache
    with Session(inlined) as session, session.bind({"cache": cache}) as binding:
        results = binding.run({"values": values, "p": np.array(0), "tmp": np.array(2)})
        np.testing.assert_array_equal(results["before"], before)
        assert np.shares_memory(results["final"], cache)
    np.testing.assert_array_equal(cache, expected)


def test_the_model_itself_stays_as_it_is() -> None:
    model = cache_model()
    data = serialize(model)
    inline(model)
    assert serialize(model) == data


def test_types_lose_the_symbols_of_the_function() -> None:
    model = cache_model()
    function = model.functions[0]
    tensor = entry(function, "same").type.tensor_type
    tensor.elem_type = TensorProto.FLOAT
    tensor.shape.dim.add(dim_value=4)
    tensor.shape.dim.add(dim_param="n")  # the function's own n
    dims = next(value for value in inline(model).graph.value_info if value.name == "same").type.tensor_type.shape.dim
    assert [(dim.dim_value, dim.dim_param) for dim in dims] == [(4, ""), (0, "")]


def test_a_handed_back_cache_is_aliased_only_if_the_output_says_so() -> None:
    text = """<ir_version: 15, opset_import: ["": 21, "f": 1]>
        g (float[4,2] cache) => (float[4,2] same, float[4,2] copy) { same = f.id(cache) copy = f.id(cache) }
        <domain: "f", opset_import: ["": 21]> id (x) => (x) { unused = Neg(x) }"""
    model = from_onnx(parser.parse_model(text))
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    nodes = {node.output[0]: node for node in inline(model).graph.node if node.op_type == "Identity"}
    assert len(nodes["same"].output_alias) == 1
    assert nodes["same"].output_alias[0].kind == ValueAliasProto.MUST_ALIAS
    assert not nodes["copy"].output_alias


def test_a_handed_back_name_is_replaced_everywhere() -> None:
    model = cache_model()
    model.functions.append(
        from_onnx(
            parser.parse_model(
                """<ir_version: 15, opset_import: ["": 21, "f": 1]> g (float a) => (float b) { b = Neg(a) }
                <domain: "f", opset_import: ["": 21]> id (x) => (x) { unused = Neg(x) }"""
            )
        ).functions[0]
    )
    call = NodeProto(op_type="id", domain="f", input=["middle"], output=["handed"])
    nodes = [model.graph.node[0], model.graph.node[1], call, model.graph.node[2]]
    nodes[3].input[0] = "handed"
    rearranged = GraphProto(node=nodes)
    del model.graph.node[:]
    model.graph.node.extend(rearranged.node)
    entry(model.graph, "handed").alias_of = "middle"
    inlined = inline(model)
    assert "handed" not in str(inlined)
    assert {value.name: value.alias_of for value in inlined.graph.value_info}["tmp__2"] == "middle"
    assert check_model(inlined) == []


def test_overloads_are_functions_of_their_own() -> None:
    model = from_onnx(
        standard(
            f"""{HEAD} (float[3] y, float[3] z) {{ y = f.op:one (a) z = f.op:two (a) }}
            <domain: "f", overload: "one", opset_import: ["": 21]> op (x) => (y) {{ y = Neg(x) }}
            <domain: "f", overload: "two", opset_import: ["": 21]> op (x) => (y) {{ y = Abs(x) }}"""
        )
    )
    assert {node.output[0]: node.op_type for node in inline(model).graph.node} == {"y": "Neg", "z": "Abs"}


@pytest.mark.parametrize(
    ("operator", "version", "message"),
    [
        ("Abs(x)", 18, ""),  # Abs is the same in 18 and 21
        ("Transpose(x)", 18, "function f::op uses 'Transpose' of version 18 of the standard domain"),
    ],
)
def test_operator_sets_may_differ_where_operators_do_not(operator: str, version: int, message: str) -> None:
    model = from_onnx(
        parser.parse_model(
            f"""{HEAD} (float[3] y) {{ y = f.op(a) }}
            <domain: "f", opset_import: ["": {version}]> op (x) => (y) {{ y = {operator} }}"""
        )
    )
    if message:
        with pytest.raises(MutcacheError, match=message):
            inline(model)
    else:
        assert not inline(model).functions


def test_what_cannot_be_inlined_is_refused() -> None:
    def refused(call: str, functions: str) -> str:
        text = f"{HEAD} (float[3] y) {{ {call} }} {functions}"
        with pytest.raises(MutcacheError) as refusal:
            inline(from_onnx(parser.parse_model(text)))
        return str(refusal.value)

    op = '<domain: "f", opset_import: ["": 21]> op (x) => (y) { y = Neg(x) }'
    assert "has 2 arguments, the function 1" in refused("y = f.op(a, b)", op)
    assert "has 2 outputs, the function 1" in refused("y, z = f.op(a)", op)
    back = '<domain: "f", opset_import: ["": 21]> back (x, y) => (y) { z = Neg(x) }'
    assert "is the argument 'y', which the call does not pass" in refused("y = f.back(a)", back)
    ring = "".join(
        f'<domain: "f", opset_import: ["": 21, "f": 1]> r{i} (x) => (y) {{ y = f.r{(i + 1) % 3}(x) }}' for i in range(3)
    )
    assert "f::r0 -> f::r1 -> f::r2 -> f::r0" in refused("y = f.r1(a)", ring)
    bomb = '<domain: "f", opset_import: ["": 21]> d0 (x) => (y) { y = Neg(x) }' + "".join(
        f'<domain: "f", opset_import: ["": 21, "f": 1]> d{i + 1} (x) => (y) {{ t = f.d{i}(x) y = f.d{i}(t) }}'
        for i in range(40)
    )
    assert "more than" in refused("y = f.d40(a)", bomb)


def test_training_information_is_refused() -> None:
    model = cache_model()
    model.training_info.add()
    with pytest.raises(MutcacheError, match="training"):
        inline(model)


def test_branches_that_call_branches_without_end_are_refused() -> None:
    text = f"""{HEAD} (float[3] y) {{ c = Constant<value = bool {{1}}>() y = f.d119(a, c) }}
        <domain: "f", opset_import: ["": 21]> d0 (x, c) => (y) {{ y = Neg(x) }}""" + "".join(
        f"""<domain: "f", opset_import: ["": 21, "f": 1]> d{i + 1} (x, c) => (y)
        {{ y = If (c) <then_branch = t () => (u) {{ u = f.d{i}(x, c) }},
                       else_branch = e () => (v) {{ v = Neg(x) }}> }}"""
        for i in range(119)
    )
    with pytest.raises(DecodeError, match="levels deep"):
        inline(from_onnx(parser.parse_model(text)))

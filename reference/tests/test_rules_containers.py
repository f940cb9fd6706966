"""MC-ACCESS-005: where sequences of and maps to quantized tensors may go."""

from __future__ import annotations

import pytest
from flow_models import INT64, body, branch, call, function, graph, loop, scan, value

from mutcache.check import diagnose
from mutcache.model import DOMAIN
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, node


def pages(name: str, kind: str = "sequence", *, mutable: bool = False, alias_of: str = "") -> ValueInfoProto:
    made = ValueInfoProto(name=name)
    if kind == "sequence":
        element = made.type.sequence_type.elem_type
    else:
        made.type.map_type.key_type = INT64
        element = made.type.map_type.value_type
    element.quantized_tensor_type.elem_type = TensorProto.FLOAT
    if mutable:
        made.access = ValueInfoProto.READ_WRITE
    if alias_of:
        made.alias_of = alias_of
    return made


def updated(source: str, output: str) -> NodeProto:
    return aliased(node("PagedCacheUpdate", [source, "p", "r", "p"], [output], domain=DOMAIN))


def gathered(source: str, output: str) -> NodeProto:
    return node("PagedCacheGather", [source, "ids"], [output], domain=DOMAIN)


def made(nodes: list[NodeProto], *functions: object, kind: str = "sequence") -> ModelProto:
    result = graph(nodes, value("y"), functions=functions, caches=())  # type: ignore[arg-type]  # FunctionProto
    result.graph.input.append(pages("t", kind, mutable=True))
    return result


def rejected(model: ModelProto) -> list[str]:
    """The operators of the nodes that the rule rejects."""
    findings = [one for one in diagnose(model, base=False) if one.requirement is Req.MC_ACCESS_005]
    return [one.where.node.split()[0] for one in findings]


@pytest.mark.parametrize(("kind", "expected"), [("sequence", []), ("map", ["SequenceLength"])])
def test_what_knows_pages_may_consume_them(kind: str, expected: list[str]) -> None:
    nodes = [
        node("Identity", ["t"], ["copy"]),
        updated("t", "u"),
        gathered("copy", "g"),
        gathered("u", "y"),
        node("SequenceLength", ["u"], ["n"]),
    ]
    assert rejected(made(nodes, kind=kind)) == expected, "ONNX has no length of a map"


@pytest.mark.parametrize("kind", ["sequence", "map"])
def test_standard_operators_do_not_know_pages(kind: str) -> None:
    nodes = [updated("t", "u"), node("Identity", ["u"], ["copy"]), node("SequenceAt", ["copy", "p"], ["y"])]
    assert rejected(made(nodes, kind=kind)) == ["SequenceAt"]


def test_a_branch_may_return_a_sequence_but_no_map() -> None:
    def chosen(kind: str) -> ModelProto:
        sides = [
            body([one], pages("b", kind, alias_of="t"))
            for one in (updated("t", "b"), aliased(node("Identity", ["t"], ["b"])))
        ]
        return made([branch(["u"], *sides), gathered("u", "y")], kind=kind)

    assert rejected(chosen("sequence")) == []
    assert rejected(chosen("map")) == ["If"]


def test_a_branch_may_read_a_captured_map() -> None:
    side = body([gathered("t", "b")], value("b"))
    assert rejected(made([branch(["y"], side, side)], kind="map")) == []
    other = body([node("SequenceAt", ["t", "p"], ["b"])], value("b"))
    assert rejected(made([branch(["y"], side, other)], kind="map")) == ["SequenceAt"]


def test_a_loop_may_carry_a_sequence_but_no_map() -> None:
    def carried(kind: str, reader: str) -> ModelProto:
        formal = pages("t_in", kind, mutable=True)
        made_loop = loop(["t"], ["u"], [updated("t_in", "b")], pages("b", kind, alias_of="t_in"), formals=[formal])
        return made([made_loop, node(reader, ["u", "p"], ["y"], domain=DOMAIN if reader[0] == "P" else "")], kind=kind)

    assert rejected(carried("sequence", "PagedCacheGather")) == []
    assert rejected(carried("sequence", "SequenceAt")) == ["SequenceAt"]
    assert rejected(carried("map", "PagedCacheGather")) == ["Loop"]


def test_no_sequence_is_the_state_of_a_scan() -> None:
    state = scan(
        ["t"], ["u"], [updated("t_in", "b")], pages("b", alias_of="t_in"), formals=[pages("t_in", mutable=True)]
    )
    assert rejected(made([state, gathered("u", "y")])) == ["Scan"]
    reading = scan(["x"], ["y"], [gathered("t", "b")], value("b"), formals=[value("x_in")])
    assert rejected(made([reading])) == []


@pytest.mark.parametrize("kind", ["sequence", "map"])
def test_functions_are_followed(kind: str) -> None:
    step = function("step", ["t", "p", "r"], ["u"], [updated("t", "u")])
    peek = function("peek", ["t", "p"], ["n"], [node("SequenceAt", ["t", "p"], ["n"])])
    stepping = call("step", ["t", "p", "r"], ["u"])
    assert rejected(made([stepping, gathered("u", "y")], step, peek, kind=kind)) == []
    assert rejected(made([stepping, node("SequenceAt", ["u", "p"], ["y"])], step, kind=kind)) == ["SequenceAt"]
    assert rejected(made([call("peek", ["t", "p"], ["y"])], peek, kind=kind)) == ["SequenceAt"]

"""Branches, loops and functions for the tests, in the words of the specification."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto.onnx_ml import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
)
from mutcache_conformance.cases.builder import OPSET, aliased, model, node, tensor, update

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
#: Domain of the functions of a model.
LOCAL = "local"


def value(name: str, *, mutable: bool = False, alias_of: str = "") -> ValueInfoProto:
    """A cache, or what is read from one."""
    return tensor(name, FLOAT, [8, 4], mutable=mutable, alias_of=alias_of)


def scalar(name: str, dtype: int = INT64) -> ValueInfoProto:
    return tensor(name, dtype, [])


def updated(source: str, output: str) -> NodeProto:
    """``output`` is ``source`` with rows ``r`` written at position ``p``."""
    return update(source, "r", "p", output)


def passed(source: str, output: str) -> NodeProto:
    return aliased(node("Identity", [source], [output]))


def negated(source: str, output: str) -> NodeProto:
    return node("Neg", [source], [output])


def body(
    nodes: Iterable[NodeProto],
    *outputs: ValueInfoProto,
    inputs: Iterable[ValueInfoProto] = (),
    value_info: Iterable[ValueInfoProto] = (),
) -> GraphProto:
    """A subgraph."""
    return GraphProto(name="body", node=nodes, output=outputs, input=inputs, value_info=value_info)


def holding(made: NodeProto, **graphs: GraphProto) -> NodeProto:
    """The node with these subgraphs."""
    for name, graph in graphs.items():
        made.attribute.add(name=name, type=AttributeProto.GRAPH, g=graph)
    return made


def branch(outputs: Sequence[str], then: GraphProto, otherwise: GraphProto) -> NodeProto:
    """An If on ``k``."""
    return holding(node("If", ["k"], outputs), then_branch=then, else_branch=otherwise)


def loop(initial: Sequence[str], outputs: Sequence[str], nodes: Iterable[NodeProto], *results: ValueInfoProto,
         formals: Iterable[ValueInfoProto]) -> NodeProto:  # fmt: skip
    """A Loop of ``m`` trips whose body passes its condition on; ``results`` follow the condition."""
    on = "_".join(["on", *outputs])  # no node may reuse a name of a graph around it
    inside = body(
        [node("Identity", ["go"], [on]), *nodes],
        scalar(on, BOOL),
        *results,
        inputs=[scalar("i"), scalar("go", BOOL), *formals],
    )
    return holding(node("Loop", ["m", "", *initial], outputs), body=inside)


def scan(initial: Sequence[str], outputs: Sequence[str], nodes: Iterable[NodeProto], *results: ValueInfoProto,
         formals: Iterable[ValueInfoProto]) -> NodeProto:  # fmt: skip
    """A Scan over ``s``, whose slice in the body is ``slice``, the last formal."""
    made = node("Scan", [*initial, "s"], outputs, {"num_scan_inputs": 1})
    return holding(made, body=body(nodes, *results, inputs=[*formals, value("slice")]))


def function(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Iterable[NodeProto],
    *value_info: ValueInfoProto,
    overload: str = "",
) -> FunctionProto:
    """A function of domain ``local``."""
    made = FunctionProto(domain=LOCAL, name=name, overload=overload, input=inputs, output=outputs, node=nodes)
    made.value_info.extend(value_info)
    for domain, version in (("", OPSET), (DOMAIN, DOMAIN_VERSION), (LOCAL, 1)):
        made.opset_import.add(domain=domain, version=version)
    return made


def call(name: str, inputs: Sequence[str], outputs: Sequence[str], *, overload: str = "") -> NodeProto:
    made = node(name, inputs, outputs, domain=LOCAL)
    if overload:
        made.overload = overload
    return made


def graph(
    nodes: Iterable[NodeProto],
    *outputs: ValueInfoProto,
    caches: Sequence[str] = ("c",),
    functions: Iterable[FunctionProto] = (),
    value_info: Iterable[ValueInfoProto] = (),
) -> ModelProto:
    """Nodes between the caches, a read-only ``x`` of the same shape, and what the constructs above need."""
    inputs = [value(name, mutable=True) for name in caches]
    inputs += [value("x"), tensor("r", FLOAT, [2, 4]), scalar("p"), scalar("k", BOOL), scalar("m")]
    inputs += [tensor("s", FLOAT, [3, 8, 4])]
    made = model(inputs, nodes, outputs, value_info=value_info)
    made.functions.extend(functions)
    for domain, version in ((DOMAIN, DOMAIN_VERSION), (LOCAL, 1)):
        if all(opset.domain != domain for opset in made.opset_import):
            made.opset_import.add(domain=domain, version=version)
    return made

"""Branches, loops, scans and functions for the cases, in the words of the specification; names are roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from onnx import TensorProto as Stock

from mutcache.model import DOMAIN, DOMAIN_VERSION, Dim
from mutcache.proto.onnx_ml import AttributeProto, FunctionProto, GraphProto, NodeProto, ValueInfoProto
from mutcache_conformance.cases.builder import OPSET, aliased, node, tensor, update
from mutcache_conformance.cases.sketch import DTYPE

#: Domain of the functions of a model.
LOCAL: Final = "local"
#: Dimensions of a cache; that of the new rows is NEW_LENGTH.
CACHE_DIMS: Final = ("max_length", "width")
NEW_LENGTH: Final = "new_length"


# Values.


def cache(name: str, *, root: str = "", mutable: bool = False) -> ValueInfoProto:
    """A cache, or a value of its type; ``root`` is what ``alias_of`` names."""
    return tensor(name, DTYPE, CACHE_DIMS, mutable=mutable, alias_of=root)


def scalar(name: str, dtype: int = Stock.INT64) -> ValueInfoProto:
    """A scalar."""
    return tensor(name, dtype, [])


def flag(name: str) -> ValueInfoProto:
    """A condition."""
    return scalar(name, Stock.BOOL)


def rows(name: str) -> ValueInfoProto:
    """The rows of an update."""
    return tensor(name, DTYPE, (NEW_LENGTH, CACHE_DIMS[1]))


def plain(name: str, rank: int = 2) -> ValueInfoProto:
    """An ordinary output, of unknown dimensions."""
    dims: list[Dim] = [None] * rank
    return tensor(name, DTYPE, dims)


# Nodes.


def write(source: str, output: str, values: str = "values", position: str = "position") -> NodeProto:
    """``output`` is ``source``, updated in place."""
    return update(source, values, position, output)


def keep(source: str, output: str) -> NodeProto:
    """``output`` is another name of ``source``."""
    return aliased(node("Identity", [source], [output]))


def copy(source: str, output: str) -> NodeProto:
    """``output`` is a copy of ``source``."""
    return node("Identity", [source], [output])


def neg(source: str, output: str) -> NodeProto:
    """``output`` is computed from ``source``."""
    return node("Neg", [source], [output])


# Bodies.


def graph(
    nodes: Iterable[NodeProto],
    *outputs: ValueInfoProto,
    inputs: Iterable[ValueInfoProto] = (),
    value_info: Iterable[ValueInfoProto] = (),
) -> GraphProto:
    """A subgraph."""
    return GraphProto(name="body", node=nodes, output=outputs, input=inputs, value_info=value_info)


def writes(source: str = "cache", output: str = "inner", *, root: str = "cache", **operands: str) -> GraphProto:
    """A branch that updates what it captures."""
    return graph([write(source, output, **operands)], cache(output, root=root))


def keeps(source: str = "cache", output: str = "inner", *, root: str = "cache") -> GraphProto:
    """A branch that passes on what it captures."""
    return graph([keep(source, output)], cache(output, root=root))


def copies(source: str = "cache", output: str = "inner") -> GraphProto:
    """A branch that copies what it captures."""
    return graph([copy(source, output)], cache(output))


def makes(source: str = "cache", output: str = "inner") -> GraphProto:
    """A branch that computes a value of its own from what it captures."""
    return graph([neg(source, output)], cache(output))


def holding(made: NodeProto, graphs: Mapping[str, GraphProto]) -> NodeProto:
    """The node with these subgraphs."""
    for name, body in graphs.items():
        made.attribute.add(name=name, type=AttributeProto.GRAPH, g=body)
    return made


def choose(
    outputs: Sequence[str] | str, then: GraphProto, otherwise: GraphProto, *, condition: str = "condition"
) -> NodeProto:
    """An If."""
    outputs = [outputs] if isinstance(outputs, str) else outputs
    return holding(node("If", [condition], outputs), {"then_branch": then, "else_branch": otherwise})


def loop(
    carried: Mapping[str, ValueInfoProto],
    outputs: Sequence[str],
    nodes: Iterable[NodeProto],
    *results: ValueInfoProto,
    trips: str = "trips",
    go: str = "",
    value_info: Iterable[ValueInfoProto] = (),
) -> NodeProto:
    """A Loop that carries, from each initial value, a formal input; what it returns follows the condition.

    The body knows ``i``, the number of the iteration, and ``go``, its condition, which it returns as ``on``; a body
    with a condition of its own names it.
    """
    nodes = list(nodes)
    on = go or "_".join(["on", *filter(None, outputs)])  # no node may reuse a name of a graph around it
    if not go:
        nodes.insert(0, copy("go", on))
    body = graph(nodes, flag(on), *results, inputs=[scalar("i"), flag("go"), *carried.values()], value_info=value_info)
    return holding(node("Loop", [trips, "", *carried], outputs), {"body": body})


def scan(
    carried: Mapping[str, ValueInfoProto],
    scanned: Mapping[str, ValueInfoProto],
    outputs: Sequence[str],
    nodes: Iterable[NodeProto],
    *results: ValueInfoProto,
) -> NodeProto:
    """A Scan with, for each initial value and each sequence, a formal input."""
    body = graph(nodes, *results, inputs=[*carried.values(), *scanned.values()])
    made = node("Scan", [*carried, *scanned], outputs, {"num_scan_inputs": len(scanned)})
    return holding(made, {"body": body})


def function(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Iterable[NodeProto],
    *value_info: ValueInfoProto,
    overload: str = "",
) -> FunctionProto:
    """A function of the domain ``local``."""
    made = FunctionProto(domain=LOCAL, name=name, overload=overload, input=inputs, output=outputs, node=nodes)
    made.value_info.extend(value_info)
    for domain, version in (("", OPSET), (DOMAIN, DOMAIN_VERSION), (LOCAL, 1)):
        made.opset_import.add(domain=domain, version=version)
    return made


def call(name: str, inputs: Sequence[str], outputs: Sequence[str], *, overload: str = "") -> NodeProto:
    """A call of such a function."""
    made = node(name, inputs, outputs, domain=LOCAL)
    if overload:
        made.overload = overload
    return made


#: What a function that mutates its first input says of it and of its first output.
LENT: Final[tuple[ValueInfoProto, ...]] = (cache("formal", mutable=True), cache("result", root="formal"))
#: ``result = step(formal, rows, at)`` updates ``formal``.
STEP_INPUTS: Final = ("formal", "rows", "at")


def step_function(*value_info: ValueInfoProto, name: str = "step", nodes: Iterable[NodeProto] = ()) -> FunctionProto:
    """A function of one update, or of the given nodes, which make ``result`` of ``formal``."""
    nodes = list(nodes) or [write("formal", "result", "rows", "at")]
    return function(name, STEP_INPUTS, ["result"], nodes, *(value_info or LENT))


def step(
    source: str, output: str, values: str = "values", position: str = "position", *, of: str = "step"
) -> NodeProto:
    """A call of it."""
    return call(of, [source, values, position], [output])

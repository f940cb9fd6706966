"""Transformations of models that keep the annotations right."""

from __future__ import annotations

from mutcache.alias import alias_classes
from mutcache.check import diagnose
from mutcache.classes import AliasClasses
from mutcache.decode import decode
from mutcache.diagnostics import Diagnostic, Location
from mutcache.digraph import components, shortest_path, stable_order
from mutcache.errors import CheckError
from mutcache.model import Graph
from mutcache.ordering import dependencies
from mutcache.proto.onnx_ml import GraphProto, ModelProto
from mutcache.requirements import Req
from mutcache.scopes import walk

#: The requirements that a re-sort can mend or show to be beyond mending.
_ORDER = (Req.MC_ALIAS_011, Req.MC_ALIAS_012)


def sort(model: ModelProto) -> ModelProto:
    """A copy whose nodes stand in an order by data and by write-after-read, in every graph and function.

    The order is stable: nodes move only past those that they must wait for, and a sound model stays as it is.

    Raises:
        CheckError: no order exists; the findings name the cycles.
        DecodeError: the model has what protobuf cannot store.
    """
    result = ModelProto()
    result.CopyFrom(model)
    decoded = decode(result)
    scopes = [scope for body in (decoded.graph, *decoded.functions.values()) for scope in walk(body)]
    classes = {scope.graph: scope for scope in alias_classes(decoded).walk()}
    # Inner graphs first: re-sorting a graph copies its nodes.
    for scope in reversed(scopes):
        # A graph that takes no part in aliasing has no classes, and is ordered by its data alone.
        names = classes.get(scope) or AliasClasses(scope)
        order = stable_order(dependencies(names, annotations=True))
        if len(order) < len(scope.nodes):
            successors = dependencies(names)
            order = stable_order(successors)
        if len(order) < len(scope.nodes):
            raise CheckError(_order_findings(model) or [_cycle(scope, successors)])
        if order != list(range(len(order))):
            _permute(scope, order)
    findings = _order_findings(result)
    if findings:
        raise CheckError(findings)
    return result


def _order_findings(model: ModelProto) -> list[Diagnostic]:
    return [finding for finding in diagnose(model, base=False) if finding.requirement in _ORDER]


def _cycle(graph: Graph, successors: list[list[int]]) -> Diagnostic:
    """The finding for a graph that no order can serve, whatever its caches."""
    numbers = components(successors)
    size: dict[int, int] = {}
    for number in numbers:
        size[number] = size.get(number, 0) + 1
    start = next(node for node, number in enumerate(numbers) if size[number] > 1 or node in successors[node])
    path = " -> ".join(graph.nodes[index].label for index in shortest_path(successors, start, start))
    return Diagnostic(
        None,
        f"no order of the nodes exists: {path} (each must precede the next)",
        Location(graph.path, graph.nodes[start].label),
        "break the cycle: no node can wait for itself",
    )


def _permute(graph: Graph, order: list[int]) -> None:
    nodes = graph.proto.node
    permuted = GraphProto()
    permuted.node.extend(nodes[index] for index in order)
    graph.proto.ClearField("node")
    nodes = graph.proto.node
    nodes.MergeFrom(permuted.node)

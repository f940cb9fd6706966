"""Graphs inside graphs: who defines a name, who uses it, and what a subgraph takes from the graphs around it."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from mutcache.model import STANDARD_DOMAINS, Graph, Node

#: Standard operators that read no contents: the shape of a storage never changes.
_SHAPE_READERS = ("Shape", "Size")


def walk(graph: Graph) -> Iterator[Graph]:
    """``graph`` and its subgraphs at every depth, outer ones first."""
    pending = [graph]
    while pending:
        scope = pending.pop()
        yield scope
        for index in reversed(scope.nested):
            pending.extend(reversed(tuple(scope.nodes[index].subgraphs.values())))


def defined_names(graph: Graph) -> set[str]:
    """Every name that ``graph`` itself defines: inputs, initializers and outputs of nodes."""
    names = {name for proto in graph.node_protos for name in proto.output}
    names.update(value.name for value in graph.inputs)
    names.update(graph.initializers, graph.sparse_initializers)
    names.discard("")
    return names


def is_shape_reader(node: Node) -> bool:
    """Whether the node reads no content of its input (``Shape``, ``Size``), so that it may come late."""
    return node.is_standard and node.op_type in _SHAPE_READERS


def captures(node: Node, *, contents: bool = False) -> set[str]:
    """The names that the subgraphs of ``node``, at any depth, take from the scopes around it.

    Args:
        node: the node.
        contents: leave out the names of which only ``Shape`` and ``Size`` are taken.
    """
    free: set[str] = set()
    pending: list[tuple[Graph, frozenset[str]]] = [(graph, frozenset()) for graph in node.subgraphs.values()]
    while pending:
        graph, outer = pending.pop()
        visible = outer | defined_names(graph)
        for proto in graph.node_protos:
            if contents and proto.op_type in _SHAPE_READERS and proto.domain in STANDARD_DOMAINS:
                continue
            free.update(name for name in proto.input if name not in visible)
        free.update(value.name for value in graph.outputs if value.name not in visible)
        for index in graph.nested:
            pending.extend((subgraph, visible) for subgraph in graph.nodes[index].subgraphs.values())
    free.discard("")
    return free


def find_uses(graph: Graph, names: frozenset[str]) -> dict[str, list[int]]:
    """The nodes that use each of ``names``, in node order, captures of contents by their subgraphs included.

    A node that both consumes and captures a name stands twice.
    """
    uses: dict[str, list[int]] = {}
    if not names:
        return uses
    is_foreign = names.isdisjoint
    for index, proto in enumerate(graph.node_protos):
        if not is_foreign(inputs := proto.input):
            for name in names.intersection(inputs):
                uses.setdefault(name, []).append(index)
    for index in graph.nested:
        for name in names.intersection(captures(graph.nodes[index], contents=True)):
            bisect.insort(uses.setdefault(name, []), index)
    return uses


def find_producers(graph: Graph, names: frozenset[str]) -> dict[str, int]:
    """The first node that defines each of ``names``; inputs, initializers and unknown names are absent."""
    producers: dict[str, int] = {}
    if not names:
        return producers
    is_foreign = names.isdisjoint
    for index, proto in enumerate(graph.node_protos):
        if not is_foreign(outputs := proto.output):
            for name in names.intersection(outputs):
                producers.setdefault(name, index)
    return producers

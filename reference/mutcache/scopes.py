"""Graphs inside graphs: who defines a name, who uses it, and what a subgraph takes from the graphs around it."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from itertools import compress, count
from operator import attrgetter, not_

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
    return free_names(node.subgraphs.values(), contents=contents)


def free_names(graphs: Iterable[Graph], *, contents: bool = False) -> set[str]:
    """The names that the graphs use and do not define; see :func:`captures`."""
    outermost = tuple(graphs)
    free: dict[Graph, set[str]] = {}
    for graph in reversed([scope for top in outermost for scope in walk(top)]):  # inner ones first
        used = {value.name for value in graph.outputs}
        for proto in graph.node_protos:
            if not (contents and proto.op_type in _SHAPE_READERS and proto.domain in STANDARD_DOMAINS):
                used.update(proto.input)
        for index in graph.nested:
            used.update(*(free[subgraph] for subgraph in graph.nodes[index].subgraphs.values()))
        free[graph] = used - defined_names(graph)
    return set().union(*(free[graph] for graph in outermost)) - {""}


def find_uses(graph: Graph, names: frozenset[str]) -> dict[str, list[int]]:
    """The nodes that use each of ``names``, in node order, captures of contents by their subgraphs included.

    A node that both consumes and captures a name stands twice.
    """
    uses: dict[str, list[int]] = {}
    for index in _touching(graph, names, "input"):
        for name in names.intersection(graph.node_protos[index].input):
            uses.setdefault(name, []).append(index)
    for index in graph.nested:
        for name in names.intersection(captures(graph.nodes[index], contents=True)):
            bisect.insort(uses.setdefault(name, []), index)
    return uses


def find_producers(graph: Graph, names: frozenset[str]) -> dict[str, int]:
    """The first node that defines each of ``names``; inputs, initializers and unknown names are absent."""
    producers: dict[str, int] = {}
    for index in _touching(graph, names, "output"):
        for name in names.intersection(graph.node_protos[index].output):
            producers.setdefault(name, index)
    return producers


def _touching(graph: Graph, names: frozenset[str], field: str) -> Iterator[int]:
    """The nodes with one of ``names`` in ``field``. The loop over all nodes runs in C: it is the checker's longest."""
    if not names:
        return iter(())
    return compress(count(), map(not_, map(names.isdisjoint, map(attrgetter(field), graph.node_protos))))

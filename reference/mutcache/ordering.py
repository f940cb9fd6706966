"""In which order the nodes of a graph may stand: by data, and every read of a version before its mutation."""

from __future__ import annotations

import itertools

from mutcache.alias import AliasClasses, captures, find_uses
from mutcache.model import Graph


def dependencies(graph: Graph, classes: AliasClasses) -> list[list[int]]:
    """For each node the nodes that must come after it; an edge may stand twice.

    Data flows from the first producer of a name to its users. A user of a version precedes the first node that
    mutates the version. The nodes that touch a class of which nothing is known keep their order.
    """
    producers: dict[str, int] = {}
    for index, proto in enumerate(graph.proto.node):
        for name in proto.output:
            producers.setdefault(name, index)
    producers.pop("", None)
    successors: list[list[int]] = [[] for _ in graph.nodes]
    for index, proto in enumerate(graph.proto.node):
        for name in proto.input:
            if name in producers:
                successors[producers[name]].append(index)
    for index in graph.nested:
        for name in captures(graph.nodes[index]):
            if name in producers:
                successors[producers[name]].append(index)

    uses = find_uses(graph, frozenset(classes.root_of))
    mutators = classes.mutators()
    touching: dict[str, set[int]] = {root: set() for root in classes.unjudged}
    for name, readers in uses.items():
        root = classes.root_of[name]
        if root in touching:
            touching[root].update(readers)
            continue
        mutating = mutators.get((root, classes.version_of[name]))
        if mutating:
            for reader in readers:
                if reader != mutating[0] and not is_exempt(graph, reader):
                    successors[reader].append(mutating[0])
    for nodes in touching.values():
        ordered = sorted(nodes)
        for earlier, later in itertools.pairwise(ordered):
            successors[earlier].append(later)
    return successors


def is_exempt(graph: Graph, index: int) -> bool:
    """Whether the node reads no content: a class never changes its shape, so ``Shape`` and ``Size`` may come late."""
    node = graph.nodes[index]
    return node.is_standard and node.op_type in ("Shape", "Size")

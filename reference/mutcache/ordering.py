"""In which order the nodes of a graph may stand: by data, and every read of a version before its mutation."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.alias import alias_names
from mutcache.classes import AliasClasses
from mutcache.scopes import find_uses, is_shape_reader


def dependencies(classes: AliasClasses, *, annotations: bool = False) -> list[list[int]]:
    """For each node of a scope the nodes that must come after it; an edge may stand twice.

    Data flows from the first producer of a name to its users. A user of a version precedes the first node that
    mutates the version.

    Args:
        classes: the scope.
        annotations: let what ``alias_of`` names precede what it stands on too (MC-ALIAS-005). Such an edge may be
            wrong, and then no order exists, though one without it does.
    """
    graph = classes.graph
    producers: dict[str, int] = {}
    for index, proto in enumerate(graph.node_protos):
        for name in proto.output:
            producers.setdefault(name, index)
    producers.pop("", None)
    successors: list[list[int]] = [[] for _ in graph.nodes]
    for index, proto in enumerate(graph.node_protos):
        for name in proto.input:
            if name in producers:
                successors[producers[name]].append(index)
    for index in graph.nested:
        for name in sorted(classes.operands(index).difference(graph.node_protos[index].input)):
            if name in producers:
                successors[producers[name]].append(index)

    uses = find_uses(graph, frozenset(classes.root_of))
    mutators = classes.mutators()
    for name, readers in uses.items():
        mutating = mutators.get((classes.root_of[name], classes.version_of[name]))
        if mutating:
            for reader in readers:
                if reader != mutating[0] and not is_shape_reader(graph.nodes[reader]):
                    successors[reader].append(mutating[0])
    if annotations:
        for target, index in _named_before(classes):
            if producers.get(target, index) != index:
                successors[producers[target]].append(index)
    return successors


def _named_before(classes: AliasClasses) -> Iterator[tuple[str, int]]:
    """(target, node) of every ``alias_of`` that names a value of this scope, on an output of the node or inside it."""
    for scope in classes.walk():
        for name, target in alias_names(scope.graph):
            if name in scope.links and scope.find(target) is classes:
                index, inner = scope.links[name].node, scope
                while inner is not classes and inner.outer is not None:
                    index, inner = inner.holder, inner.outer
                yield target, index

"""Values that have their storage from themselves, by nodes, bodies and ``alias_of``, through subgraphs too."""

from __future__ import annotations

import itertools

from mutcache.alias import alias_names
from mutcache.classes import AliasClasses
from mutcache.constructs import Construct, construct_of, slots
from mutcache.digraph import components, shortest_path

#: A value: the scope that defines it, and its name.
Place = tuple[AliasClasses, str]


def alias_cycles(top: AliasClasses) -> dict[Place, tuple[Place, ...]]:
    """Each value on a cycle of "has the storage of" to the closed path found for it.

    Args:
        top: the scope of the main graph or of a function; those inside it are followed too.
    """
    if _is_ordered(top):
        return {}
    edges: dict[Place, list[Place]] = {}
    for scope in top.walk():
        for origin, target in _edges(scope):
            edges.setdefault(origin, []).append(target)
    places = list(dict.fromkeys([*edges, *itertools.chain.from_iterable(edges.values())]))
    number = {place: index for index, place in enumerate(places)}
    successors = [[number[target] for target in edges.get(place, ())] for place in places]
    vertices_of: dict[int, list[int]] = {}
    for vertex, component in enumerate(components(successors)):
        vertices_of.setdefault(component, []).append(vertex)
    cycles: dict[Place, tuple[Place, ...]] = {}
    for vertices in vertices_of.values():
        if len(vertices) > 1 or vertices[0] in successors[vertices[0]]:
            path = tuple(places[vertex] for vertex in shortest_path(successors, vertices[0], vertices[0]))
            cycles.update((places[vertex], path) for vertex in vertices)
    return cycles


def _is_ordered(scope: AliasClasses) -> bool:
    """Whether every value has its storage from one that an earlier node defines, so that no cycle can be."""
    links = scope.links
    return (
        not scope.inner
        and all(link.source not in links or links[link.source].node < link.node for link in links.values())
        and all(
            name in links and (target not in links or links[target].node < links[name].node)
            for name, target in alias_names(scope.graph)
        )
    )


def _edges(scope: AliasClasses) -> list[tuple[Place, Place]]:
    found = [(_place(scope, link.output), _place(scope, link.source)) for link in scope.links.values()]
    found += [(_place(scope, name), _place(scope, target)) for name, target in alias_names(scope.graph)]
    for index, bodies in scope.inner.items():
        node = scope.graph.nodes[index]
        for body in bodies.values():
            results = [value.name for value in body.graph.outputs]
            ports = list(enumerate(range(len(results))))
            if construct_of(node) is not Construct.BRANCH:
                ports = [(slot.output, slot.result) for slot in slots(node, body.graph)]
            for output, result in ports:
                if output < len(node.outputs) and node.outputs[output] in scope.links:
                    found.append((_place(scope, node.outputs[output]), _place(body, results[result])))
            found += [
                ((body, formal), _place(scope, initial))
                for formal, initial in body.origins.items()
                if formal in body.defined
            ]
    return found


def _place(scope: AliasClasses, name: str) -> Place:
    return scope.find(name), name

"""Directed graphs on the vertices 0, 1, ...: what the rules and the sort need to know of cycles and order."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

Successors = Sequence[Sequence[int]]


def components(successors: Successors) -> list[int]:
    """The number of the strongly connected component of each vertex (Tarjan's algorithm, without recursion)."""
    component = [-1] * len(successors)
    entered = [-1] * len(successors)
    lowest = [0] * len(successors)
    open_vertices: list[int] = []
    clock = found = 0
    for start in range(len(successors)):
        if entered[start] >= 0:
            continue
        path = [(start, 0)]
        while path:
            vertex, edge = path.pop()
            if edge == 0:
                entered[vertex] = lowest[vertex] = clock
                clock += 1
                open_vertices.append(vertex)
            else:
                lowest[vertex] = min(lowest[vertex], lowest[successors[vertex][edge - 1]])
            for following in range(edge, len(successors[vertex])):
                target = successors[vertex][following]
                if entered[target] < 0:
                    path += [(vertex, following + 1), (target, 0)]
                    break
                if component[target] < 0:
                    lowest[vertex] = min(lowest[vertex], entered[target])
            else:
                if lowest[vertex] == entered[vertex]:
                    while component[vertex] < 0:
                        component[open_vertices.pop()] = found
                    found += 1
    return component


def shortest_path(successors: Successors, start: int, goal: int) -> list[int]:
    """A path of at least one edge from ``start`` to ``goal``, both included; empty when there is none."""
    came_from: dict[int, int] = {}
    frontier = [start]
    while frontier and goal not in came_from:
        reached = []
        for vertex in frontier:
            for target in successors[vertex]:
                if target not in came_from:
                    came_from[target] = vertex
                    reached.append(target)
        frontier = reached
    if goal not in came_from:
        return []
    path = [goal, came_from[goal]]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def stable_order(successors: Successors) -> list[int]:
    """The topological order that takes the smallest vertex whenever it can; cut short where a cycle begins."""
    waiting = [0] * len(successors)
    for targets in successors:
        for target in targets:
            waiting[target] += 1
    ready = [vertex for vertex, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        vertex = heapq.heappop(ready)
        order.append(vertex)
        for target in successors[vertex]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(ready, target)
    return order

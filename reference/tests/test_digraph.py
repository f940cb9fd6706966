"""Components, paths and stable orders of directed graphs, against reachability by brute force."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis import given

from mutcache.digraph import components, shortest_path, stable_order

SIZE = 7
GRAPHS = st.lists(st.lists(st.integers(0, SIZE - 1), max_size=3), min_size=SIZE, max_size=SIZE)


def reachable(successors: list[list[int]]) -> list[set[int]]:
    """For each vertex what at least one edge leads to."""
    reach = [set(targets) for targets in successors]
    for _ in successors:
        for targets in reach:
            targets.update(*(reach[target] for target in targets))
    return reach


@given(GRAPHS)
def test_a_component_is_what_reaches_each_other(successors: list[list[int]]) -> None:
    reach = reachable(successors)
    found = components(successors)
    for one, other in itertools.combinations(range(SIZE), 2):
        assert (found[one] == found[other]) == (other in reach[one] and one in reach[other])


@given(GRAPHS, st.integers(0, SIZE - 1), st.integers(0, SIZE - 1))
def test_a_path_exists_where_the_goal_is_reachable(successors: list[list[int]], start: int, goal: int) -> None:
    path = shortest_path(successors, start, goal)
    assert bool(path) == (goal in reachable(successors)[start])
    if path:
        assert (path[0], path[-1]) == (start, goal)
        assert all(target in successors[vertex] for vertex, target in itertools.pairwise(path))
        assert len(path) == len(set(path)) + (start == goal)


@given(GRAPHS)
def test_an_order_is_the_smallest_and_stops_only_at_cycles(successors: list[list[int]]) -> None:
    order = stable_order(successors)
    reach = reachable(successors)
    blocked = {vertex for vertex in range(SIZE) if vertex in reach[vertex]}
    blocked.update(*(reach[vertex] for vertex in tuple(blocked)))
    assert set(order) == set(range(SIZE)) - blocked
    for position, vertex in enumerate(order):
        smaller = [other for other in order[position:] if other < vertex]
        # Whatever is smaller and comes later waits for something that had not come yet.
        assert all(any(other in successors[waited] for waited in order[position:]) for other in smaller)


def test_long_chains_need_no_recursion() -> None:
    successors = [[vertex + 1] for vertex in range(20_000)] + [[0]]
    assert set(components(successors)) == {0}
    assert stable_order(successors) == []
    assert stable_order([*successors[:-1], []]) == list(range(20_001))

"""Schedules: in which order an execution takes the nodes of a graph.

Results do not depend on it. Dependencies are those of :mod:`mutcache.ordering`: data, and every read of a version
before the mutation that ends it. Two mutations of one class need no rule of their own, since the later one takes
what the earlier one makes. A value that a kernel returns as a view of a class may be used after a mutation in one
order and before it in another: which of them are copied, the plan decides for the order that it is made for.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final

from mutcache.classes import AliasClasses
from mutcache.digraph import Successors, stable_order
from mutcache.errors import PlanError
from mutcache.ordering import dependencies

#: The schedule that takes the nodes as they stand in the model.
NODE_ORDER: Final = "node-order"
_RANDOM: Final = re.compile(r"random:([0-9]{1,18})", re.ASCII)


def seed_of(schedule: str) -> int | None:
    """The seed of a random schedule, None for node order.

    Raises:
        PlanError: there is no such schedule.
    """
    if schedule == NODE_ORDER:
        return None
    match = _RANDOM.fullmatch(schedule) if isinstance(schedule, str) else None
    if match is None:
        raise PlanError(
            f"there is no schedule {schedule!r}", hint=f"schedules: {NODE_ORDER}, random:SEED with a number SEED >= 0"
        )
    return int(match[1])


def execution_order(classes: AliasClasses, schedule: str = NODE_ORDER) -> Sequence[int]:
    """The indices of the nodes of a sound graph in the order of execution.

    Args:
        classes: the alias classes of the graph.
        schedule: ``node-order``; or ``random:SEED``, an order drawn from all those that the dependencies allow, the
            same one for the same graph and seed.

    Raises:
        PlanError: there is no such schedule.
    """
    seed = seed_of(schedule)
    return range(len(classes.graph.nodes)) if seed is None else random_order(dependencies(classes), seed)


def random_order(successors: Successors, seed: int) -> list[int]:
    """A topological order of an acyclic graph, drawn by ``seed``. Every such order can be drawn."""
    # Of the vertices that may come next the one with the smallest rank is taken, so that any order is drawn when the
    # ranks happen to follow it.
    vertex_of = list(range(len(successors)))
    random.Random(seed).shuffle(vertex_of)
    rank_of = {vertex: rank for rank, vertex in enumerate(vertex_of)}
    ranked = [[rank_of[target] for target in successors[vertex]] for vertex in vertex_of]
    return [vertex_of[rank] for rank in stable_order(ranked)]

"""Timing that stands a busy machine: competitors take turns, medians count, the garbage collector waits."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

Work = Callable[[], object]


def compare(competitors: Sequence[Work], *, rounds: int, warm_up: int = 1, calls: int = 1) -> list[float]:
    """The median time of one call of each competitor, in seconds.

    In every round each competitor runs ``calls`` times in a row and is timed once, so that what slows the machine
    down for a while slows all of them down. Every other round goes backwards: none always runs after the same one.

    Args:
        competitors: what to time, by turns.
        rounds: timed rounds.
        warm_up: rounds before them that do not count.
        calls: calls per timing; as many as make a timing long against the clock's resolution.
    """
    samples: list[list[float]] = [[] for _ in competitors]
    numbered = list(enumerate(competitors))
    with _no_collection():
        for turn in range(warm_up + rounds):
            for index, work in numbered if turn % 2 == 0 else reversed(numbered):
                gc.collect()
                start = perf_counter()
                for _ in range(calls):
                    work()
                elapsed = perf_counter() - start
                if turn >= warm_up:
                    samples[index].append(elapsed / calls)
    return [statistics.median(times) for times in samples]


@contextmanager
def _no_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

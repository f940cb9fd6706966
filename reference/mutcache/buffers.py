"""Reuse of buffers: which intermediate values take the same memory, one after another.

Opportunistic, and apart from MUST_ALIAS: only values that a scope makes and drops itself are ever candidates, never the
storage of a class that comes from outside (MC-PLAN-007).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A value that needs ``bytes`` from step ``first`` to step ``last``, both included."""

    name: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of ``bytes``, and the values that have it one after another, in order of their steps."""

    bytes: int
    values: tuple[str, ...]


def share_buffers(spans: Iterable[Span]) -> tuple[Buffer, ...]:
    """Buffers for all spans, none given to two values that are live in one step; the largest first.

    Greedy by size (Pisarchyk and Lee, 2020): the largest value first, each into the smallest buffer that is free
    during its life, so that no buffer grows for a later value. The result does not depend on names.
    """
    buffers: list[list[tuple[int, int, Span]]] = []
    for span in sorted(spans, key=lambda span: (-span.bytes, span.first, span.last)):
        for occupied in reversed(buffers):  # the smallest buffers come last
            at = bisect_left(occupied, span.first, key=lambda entry: entry[0])
            is_free_before = at == 0 or occupied[at - 1][1] < span.first
            is_free_behind = at == len(occupied) or span.last < occupied[at][0]
            if is_free_before and is_free_behind:
                insort(occupied, (span.first, span.last, span), key=lambda entry: entry[0])
                break
        else:
            buffers.append([(span.first, span.last, span)])
    return tuple(
        Buffer(max(span.bytes for _, _, span in occupied), tuple(span.name for _, _, span in occupied))
        for occupied in buffers
    )

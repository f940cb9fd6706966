"""Benchmarks: ratios against peers, measured in one run on one machine. Nothing here is asserted by a test.

A benchmark is a module of this package with its `Benchmark` in ``BENCHMARK``; to add one, add its name to
``MODULES``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Final

#: Module names, in the order of the table.
MODULES: Final = ("check", "dense_update")


class Unit(enum.StrEnum):
    """What a figure counts."""

    SECONDS = "s"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Peer:
    """What a row is compared with. ``figure`` is None when the peer is absent, and ``absence`` says why."""

    name: str
    figure: float | None = None
    absence: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """The limit that a row is to keep: of its ratio if it has a peer, else of its figure."""

    limit: float
    at_least: bool = False

    def is_reached(self, value: float) -> bool:
        """Whether ``value`` keeps the limit."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        what: the work that was measured.
        figure: the measured median, in ``unit``; None when it could not be measured, as ``note`` then says.
        peer: what it is compared with, or None for a row that stands by itself.
        goal: the limit to keep, or None for a row that is only reported.
        note: how to read the row.
    """

    what: str
    unit: Unit
    figure: float | None
    peer: Peer | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The figure as a multiple of the peer's."""
        if self.figure is None or self.peer is None or not self.peer.figure:
            return None
        return self.figure / self.peer.figure

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None when there is none, or nothing to judge it by."""
        value = self.figure if self.peer is None else self.ratio
        return None if self.goal is None or value is None else self.goal.is_reached(value)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Some rows that are measured together; ``run`` measures while the rows are taken from it."""

    name: str
    help: str
    run: Callable[[], Iterator[Row]]


def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by its name."""
    found = (import_module(f"{__name__}.{module}").BENCHMARK for module in MODULES)
    return {benchmark.name: benchmark for benchmark in found}

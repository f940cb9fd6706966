"""Benchmarks: ratios against peers, measured in one run on one machine. Nothing here is asserted by a test.

A benchmark is a module of this package with a function ``measure`` that yields rows; to add one, add its name to
``BENCHMARKS``. Importing this package alone is cheap.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Final

#: What ``mutcache bench`` can measure, in the order of its table: name on the command line to module name.
BENCHMARKS: Final = {"check": "check", "dense-update": "dense_update", "page-codec": "page_codec"}


class Unit(enum.StrEnum):
    """What a figure counts."""

    SECONDS = "s"
    BYTES = "bytes"
    TIMES = "times"  # as many times as much, a growth


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


def measure(name: str) -> Iterator[Row]:
    """Run one benchmark; each row is measured when it is taken, or together with those before it."""
    module = import_module(f"{__name__}.{BENCHMARKS[name]}")
    rows: Iterator[Row] = module.measure()
    return rows

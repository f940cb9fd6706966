"""What was found of a step: what the child told of it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mutcache_conformance.memory import MemoryFile, Placement
from mutcache_conformance.status import CaseEnded, Status


class Reader(Protocol):
    """Reads through the adapter."""

    def __call__(self, output: str, offset: int, nbytes: int, *, page: int | None = None) -> bytes:
        """Bytes of an output, or of a page of one, from a row-major offset, as the adapter sees them."""


@dataclass(frozen=True, slots=True)
class TableView:
    """A page table as the child tells of it.

    Attributes:
        table: its name in the case.
        value: the name of the output, or of the input, that it is told of as.
        told: its container and pages.
        read: reads its pages.
        lent: the files that the child has mapped for it, and where.
    """

    table: str
    value: str
    told: Mapping[str, Any]
    read: Reader
    lent: Sequence[tuple[MemoryFile, int]]


@dataclass(frozen=True, slots=True)
class RunView:
    """A finished run as the child tells it.

    Attributes:
        outputs: what it says of each output: dtype, shape, nbytes, address; of a container its pages.
        mutable: the storage of each mutable input.
        bound_outputs: the caller's storage of outputs.
        addresses: where the host mapped each of these, by value name.
        read: reads outputs.
        tables: the page table of each mutable input that has one.
    """

    outputs: Mapping[str, Mapping[str, Any]]
    mutable: Mapping[str, Placement]
    bound_outputs: Mapping[str, Placement]
    addresses: Mapping[str, int]
    read: Reader
    tables: Mapping[str, TableView] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides of a comparison of bytes that did not hold."""

    subject: str
    expected: bytes
    found: bytes


@dataclass(slots=True)
class Wrong:
    """What is wrong after a step: for each thing why, and the cause without names and numbers of the case."""

    when: str
    reasons: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)

    def add(self, reason: str, cause: str) -> None:
        """Add one thing."""
        self.reasons.append(reason)
        self.causes.append(cause)

    def end(self) -> None:
        """End the case if anything is; the first two things are told, since the second often explains the first."""
        if self.reasons:
            raise CaseEnded(Status.FAIL, "\n".join(self.reasons[:2]), self.causes[0])


def first_difference(seen: bytes, must: bytes) -> tuple[int, int]:
    """The first byte that differs, and how many do."""
    places = np.flatnonzero(np.frombuffer(seen, np.uint8) != np.frombuffer(must, np.uint8))
    return int(places[0]), len(places)


def values_differ(expected: Any, found: Any) -> str:
    """An element in words. Some types warn of their special values when they are printed."""
    with np.errstate(all="ignore"):
        return f", so the element is {found!s} and not {expected!s}"

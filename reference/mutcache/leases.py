"""The exclusive leases of the storage that executions may modify."""

from __future__ import annotations

import enum
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from mutcache.errors import BindError
from mutcache.requirements import Req
from mutcache.storage import ByteRange


class Use(enum.Enum):
    """What a leased range is to its owner."""

    MUTABLE = "mutable input"
    OUTPUT = "output"
    INITIALIZER = "initializer"

    @property
    def excluded(self) -> frozenset[Use]:
        """The uses that others cannot make of the range meanwhile: outputs may share, and so may initializers."""
        return frozenset(Use) if self is Use.MUTABLE else frozenset(Use) - {self}


@dataclass(frozen=True, slots=True)
class Claim:
    """A byte range that something asks for or holds, and the name of the value."""

    name: str
    byte_range: ByteRange
    use: Use

    def __str__(self) -> str:
        return f"{self.use.value} {self.name!r} ({self.byte_range})"


def first_overlap(asked: Iterable[Claim], held: Iterable[Claim]) -> tuple[Claim, Claim] | None:
    """A claim of each side that share a byte, or None.

    One sweep in the order of the addresses: a range meets an earlier one of the other side exactly if it starts
    before the furthest end so far.
    """
    furthest: list[Claim | None] = [None, None]
    entries = [(claim, side) for side, claims in enumerate((asked, held)) for claim in claims]
    for claim, side in sorted(entries, key=lambda entry: entry[0].byte_range):
        if claim.byte_range.is_empty:
            continue
        other = furthest[1 - side]
        if other is not None and other.byte_range.overlaps(claim.byte_range):
            return (other, claim) if side else (claim, other)
        mine = furthest[side]
        if mine is None or mine.byte_range.end < claim.byte_range.end:
            furthest[side] = claim
    return None


def first_overlap_within(claims: Iterable[Claim]) -> tuple[Claim, Claim] | None:
    """Two of ``claims`` that share a byte, or None."""
    furthest: Claim | None = None
    for claim in sorted(claims, key=lambda claim: claim.byte_range):
        if claim.byte_range.is_empty:
            continue
        if furthest is not None and furthest.byte_range.overlaps(claim.byte_range):
            return furthest, claim
        furthest = claim  # disjoint from all before it, so it also ends last
    return None


class Lease:
    """Claims that are held until :meth:`release`, or until nobody refers to the lease any more."""

    __slots__ = ("__weakref__", "_finalizer", "key")

    def __init__(self, key: int, end: Callable[[int], None]) -> None:
        self.key = key
        self._finalizer = weakref.finalize(self, end, key)
        self._finalizer.atexit = False

    def release(self) -> None:
        """Give the ranges back; a second call does nothing."""
        self._finalizer()


class LeaseTable:
    """The claims held in this process. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = itertools.count()
        self._held: dict[int, dict[Claim, None]] = {}
        # The garbage collector may end a lease in a thread that is inside this table: it must not wait for the lock.
        self._ended: deque[int] = deque()

    def acquire(self, claims: Iterable[Claim]) -> Lease:
        """Lease all of ``claims``, or none.

        Raises:
            BindError: MC-BIND-004 (they overlap each other), MC-BIND-003 (an initializer), MC-BIND-005 (leased),
                MC-BIND-012 (it is to hold an initializer).
        """
        claims = tuple(claims)
        written = [claim for claim in claims if claim.use is not Use.INITIALIZER]
        if (pair := first_overlap_within(written)) is not None:
            _refuse_within(*pair)
        with self._lock:
            self._collect()
            held = [claim for group in self._held.values() for claim in group]
            for use in Use:
                asked = [claim for claim in claims if claim.use is use]
                excluded = use.excluded
                _refuse(first_overlap(asked, [claim for claim in held if claim.use in excluded]) if asked else None)
            key = next(self._keys)
            self._held[key] = dict.fromkeys(claims)
        return Lease(key, self._ended.append)

    def add(self, lease: Lease, claim: Claim) -> None:
        """Let ``lease`` hold one more claim.

        Raises:
            BindError: as `acquire`; MC-BIND-004 if it overlaps what the lease holds already.
        """
        with self._lock:
            self._collect()
            for key, group in self._held.items():
                for held in group:
                    if held.byte_range.overlaps(claim.byte_range):
                        if key == lease.key:
                            _refuse_within(held, claim)
                        _refuse((claim, held))
            self._held[lease.key][claim] = None

    def enter(self, lease: Lease, claim: Claim) -> None:
        """Let ``lease`` hold one more claim, which nothing overlaps: that of memory that was just allocated."""
        with self._lock:
            self._held[lease.key][claim] = None

    def holds(self, lease: Lease, claims: Iterable[Claim]) -> bool:
        """Whether ``lease`` holds all of ``claims``."""
        with self._lock:
            return self._held[lease.key].keys() >= set(claims)

    def drop(self, lease: Lease, claim: Claim) -> None:
        """Give one claim back before the lease ends."""
        with self._lock:
            self._held[lease.key].pop(claim, None)

    def renew_lock(self) -> None:
        """Forget who holds the lock: a thread that a child process has not got cannot release it."""
        self._lock = threading.Lock()

    def held(self) -> Mapping[int, tuple[Claim, ...]]:
        """The claims held now, by the key of their lease."""
        with self._lock:
            self._collect()
            return {key: tuple(group) for key, group in self._held.items()}

    def _collect(self) -> None:
        """Forget the leases that ended. Needs the lock."""
        while self._ended:
            del self._held[self._ended.popleft()]


def _refuse_within(one: Claim, other: Claim) -> NoReturn:
    raise BindError(
        f"{one} overlaps {other} of the same binding",
        requirement=Req.MC_BIND_004,
        hint="bind disjoint storage to each value",
    )


def _refuse(pair: tuple[Claim, Claim] | None) -> None:
    if pair is None:
        return
    asked, held = pair
    requirement, hint = Req.MC_BIND_005, "release that binding first"
    if (asked.use, held.use) == (Use.INITIALIZER, Use.MUTABLE):
        requirement, hint = Req.MC_BIND_012, "release that binding first, or keep the initializer elsewhere"
    elif Use.INITIALIZER in (asked.use, held.use):
        requirement, hint = Req.MC_BIND_003, "initializers are read-only: bind storage of your own"
    raise BindError(
        f"{asked} overlaps {held}, which a session holds",
        requirement=requirement,
        hint=hint,
        asked=asked,
        held=held,
    )


#: All leases of this process: a lease excludes other sessions, so there is one table.
LEASES: Final = LeaseTable()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LEASES.renew_lock)

"""The exclusive leases of the storage that executions may modify."""

from __future__ import annotations

import enum
import itertools
import os
import threading
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
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


class _Ranges:
    """Claims by address, no two of which share a byte: one look tells what a range meets, however many there are."""

    def __init__(self) -> None:
        self._starts: list[tuple[str, int]] = []
        self._entries: list[tuple[int, Claim]] = []

    def put(self, key: int, claim: Claim) -> None:
        """Enter a claim of the lease with this key; one without bytes meets nothing and is left out."""
        if not claim.byte_range.is_empty:
            start = _start(claim)
            at = bisect_left(self._starts, start)
            self._starts.insert(at, start)
            self._entries.insert(at, (key, claim))

    def drop(self, key: int, claim: Claim) -> None:
        """Leave a claim out that was entered."""
        if not claim.byte_range.is_empty:
            at = bisect_left(self._starts, _start(claim))
            # Memory may be freed, allocated again and entered before its first owner's lease is found to have ended.
            while self._entries[at] != (key, claim):
                at += 1
            del self._starts[at], self._entries[at]

    def meeting(self, claim: Claim) -> tuple[int, Claim] | None:
        """An entry that shares a byte with ``claim``, with the key of its lease, or None."""
        asked = claim.byte_range
        at = bisect_left(self._starts, (asked.device, asked.stop)) - 1
        if at >= 0 and self._entries[at][1].byte_range.overlaps(asked):
            return self._entries[at]
        return None


def _start(claim: Claim) -> tuple[str, int]:
    return claim.byte_range.device, claim.byte_range.start


class LeaseTable:
    """The claims held in this process. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = itertools.count()
        self._held: dict[int, dict[Claim, None]] = {}
        # What is mutable overlaps nothing, and may be the pages of large tables; all else may be shared, and is little.
        self._mutable = _Ranges()
        self._shared: dict[int, tuple[Claim, ...]] = {}
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
            for claim in claims:
                if (met := self._mutable.meeting(claim)) is not None:
                    _refuse(claim, met[1])
            for use in Use:
                asked = [claim for claim in claims if claim.use is use]
                held = self._all_shared(use.excluded) if asked else ()
                if (pair := first_overlap(asked, held)) is not None:
                    _refuse(*pair)
            key = next(self._keys)
            self._held[key] = dict.fromkeys(claims)
            self._shared[key] = tuple(claim for claim in claims if claim.use is not Use.MUTABLE)
            for claim in claims:
                if claim.use is Use.MUTABLE:
                    self._mutable.put(key, claim)
        return Lease(key, self._ended.append)

    def add(self, lease: Lease, claim: Claim) -> None:
        """Let ``lease`` hold one more claim of mutable storage.

        Raises:
            BindError: as `acquire`; MC-BIND-004 if it overlaps what the lease holds already.
        """
        with self._lock:
            self._collect()
            met = self._mutable.meeting(claim)
            if met is None:
                met = next((one for one in self._shared_of() if one[1].byte_range.overlaps(claim.byte_range)), None)
            if met is not None:
                if met[0] == lease.key:
                    _refuse_within(met[1], claim)
                _refuse(claim, met[1])
            self._enter(lease, claim)

    def enter(self, lease: Lease, claim: Claim) -> None:
        """Let ``lease`` hold one more claim, which nothing overlaps: that of memory that was just allocated."""
        with self._lock:
            self._collect()
            self._enter(lease, claim)

    def holds(self, lease: Lease, claims: Iterable[Claim]) -> bool:
        """Whether ``lease`` holds all of ``claims``."""
        with self._lock:
            return self._held[lease.key].keys() >= set(claims)

    def drop(self, lease: Lease, claim: Claim) -> None:
        """Give one claim of mutable storage back before the lease ends."""
        with self._lock:
            if claim in self._held[lease.key]:
                del self._held[lease.key][claim]
                self._mutable.drop(lease.key, claim)

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
            key = self._ended.popleft()
            del self._shared[key]
            for claim in self._held.pop(key):
                if claim.use is Use.MUTABLE:
                    self._mutable.drop(key, claim)

    def _enter(self, lease: Lease, claim: Claim) -> None:
        """Hold a claim. Needs the lock."""
        self._held[lease.key][claim] = None
        self._mutable.put(lease.key, claim)

    def _shared_of(self) -> Iterator[tuple[int, Claim]]:
        """What is not mutable, with the keys of the leases."""
        return ((key, claim) for key, claims in self._shared.items() for claim in claims)

    def _all_shared(self, uses: frozenset[Use]) -> list[Claim]:
        return [claim for _, claim in self._shared_of() if claim.use in uses]


def _refuse_within(one: Claim, other: Claim) -> NoReturn:
    raise BindError(
        f"{one} overlaps {other} of the same binding",
        requirement=Req.MC_BIND_004,
        hint="bind disjoint storage to each value",
    )


def _refuse(asked: Claim, held: Claim) -> NoReturn:
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

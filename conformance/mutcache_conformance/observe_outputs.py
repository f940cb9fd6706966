"""Looks at the outputs of a run: their form and address, what a poke shows through them, and their values."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from mutcache_conformance.dtypes import dtype_of, number_of
from mutcache_conformance.evidence import Basis, Kind, Observation, StepRecord, digest_of
from mutcache_conformance.findings import Comparison, RunView, Wrong, first_difference, values_differ
from mutcache_conformance.memory import Bytes, HarnessError, Placement, row_major
from mutcache_conformance.oracle import Contents, OracleResult
from mutcache_conformance.oracle_judge import judge_gathered
from mutcache_conformance.oracle_pages import Gathered
from mutcache_conformance.overlay import Overlay
from mutcache_conformance.wording import tensor

#: An aliased output is read whole up to this size, beyond it only around the poke.
WINDOW: Final = 1 << 16
_COPY: Final = "an output that must alias its storage is a copy"


class OutputObserver:
    """Compares outputs.

    Args:
        comparisons: takes both sides of comparisons that do not hold.
        basis: who sees what caches hold.
    """

    def __init__(self, comparisons: list[Comparison], basis: Basis) -> None:
        self.comparisons = comparisons
        self._basis = basis

    def form_is_right(self, record: StepRecord, name: str, expected: Contents, run: RunView, wrong: Wrong) -> bool:
        """Whether an output has the type, shape and size that it must have."""
        told = run.outputs[name]
        try:
            dtype = number_of(expected.dtype)
        except ValueError as error:
            raise HarnessError(f"output {name!r}: {error}") from None
        observation = Observation(
            Kind.OUTPUT,
            f"{name}: form",
            f"{tensor(dtype, expected.shape)}, {expected.nbytes} bytes",
            f"{tensor(told['dtype'], told['shape'])}, {told['nbytes']} bytes",
            Basis.REPORTED,
        )
        record.observations.append(observation)
        if not observation.holds:
            wrong.add(
                f"{wrong.when} output {name!r} is {observation.found}; expected {observation.expected}",
                "an output has another type or shape than the model's",
            )
        return observation.holds

    def check_address(
        self, record: StepRecord, name: str, place: Placement, expected: OracleResult, run: RunView, wrong: Wrong
    ) -> None:
        """Hold the address of an output against that of the storage that it must be."""
        told = run.outputs[name]["address"]
        if told is None or not place.nbytes:  # an interface that shows no addresses is left to the poke
            return
        storage = f"storage {place.storage.name!r}"
        address = run.addresses[expected.root_of_output.get(name, name)]
        found = storage if int(told) == address else "elsewhere"
        observation = Observation(Kind.ADDRESS, name, storage, found, Basis.REPORTED)
        record.observations.append(observation)
        if not observation.holds:
            wrong.add(
                f"{wrong.when} output {name!r} is at address {int(told):#x}, {storage}, which it must alias, at "
                f"{address:#x}: the output is a copy",
                _COPY,
            )

    def poke(self, record: StepRecord, name: str, place: Placement, run: RunView, wrong: Wrong) -> None:
        """Change a byte of the storage from outside; the output must show it at once, among what the storage holds."""
        nbytes = math.prod(place.storage.shape) * dtype_of(place.storage.dtype).itemsize
        if not nbytes:
            return
        at = (record.index * 7919 + 13) % nbytes
        start, end = (0, nbytes) if nbytes <= WINDOW else (max(0, at - WINDOW // 2), min(nbytes, at + 64))
        unpoked = _held(place, start, end)
        in_file = place.offset + _physical(place, at)
        try:
            place.file.bytes[in_file] ^= 0xFF
            seen = run.read(name, start, end - start)
        finally:
            place.file.bytes[in_file] ^= 0xFF
        must = unpoked.copy()
        must[at - start] ^= 0xFF
        observation = Observation(Kind.POKE, name, digest_of(must.tobytes()), digest_of(seen), self._basis)
        record.observations.append(observation)
        storage = f"storage {place.storage.name!r}"
        if observation.holds:
            return
        if seen == unpoked.tobytes():
            wrong.add(
                f"{wrong.when} byte {at} of {storage} was changed from outside, and output {name!r} does not show it: "
                "the output is a copy",
                _COPY,
            )
        else:
            byte, _ = first_difference(seen, must.tobytes())
            self.comparisons.append(Comparison(name, must.tobytes(), seen))
            wrong.add(
                f"{wrong.when} byte {start + byte} of output {name!r} reads as {seen[byte]:#04x}; {storage}, which it "
                f"must alias, holds {int(must[byte]):#04x} there",
                "an output does not show what the storage that it must alias holds",
            )

    def check_value(
        self,
        record: StepRecord,
        name: str,
        expected: Contents,
        gathered: Gathered | None,
        run: RunView,
        wrong: Wrong,
    ) -> None:
        """Compare an output of the runtime's own, as the adapter reads it."""
        if isinstance(expected, Overlay):
            raise HarnessError(f"output {name!r} of {expected.nbytes} bytes is no storage of the caller's")
        data = expected.tobytes()
        seen = run.read(name, 0, len(data)) if data else b""
        if gathered is not None and len(seen) == len(data):
            self._check_gathered(record, name, gathered, seen, wrong)
            return
        observation = Observation(Kind.OUTPUT, name, digest_of(data), digest_of(seen), Basis.REPORTED)
        record.observations.append(observation)
        if not observation.holds:
            byte, count = first_difference(seen, data)
            element = [int(n) for n in np.unravel_index(byte // expected.itemsize, expected.shape)]
            first = byte - byte % expected.itemsize
            must, is_ = (np.frombuffer(side, expected.dtype, 1, first)[0] for side in (data, seen))
            self.comparisons.append(Comparison(name, data, seen))
            wrong.add(
                f"{wrong.when} byte {byte} of output {name!r} (element {element}): expected {data[byte]:#04x}, found "
                f"{seen[byte]:#04x}{values_differ(must, is_)}; {count} of {len(data)} bytes differ",
                "an output has wrong values",
            )

    def _check_gathered(self, record: StepRecord, name: str, expected: Gathered, seen: bytes, wrong: Wrong) -> None:
        """What was decoded of pages may be a unit in the last place off."""
        values = expected.values
        judgement = judge_gathered(expected, np.frombuffer(seen, values.dtype).reshape(values.shape))
        held = digest_of(seen)
        if not judgement.problem:
            within = held if judgement.is_exact else f"{held}, within 1 ulp"
            record.observations.append(Observation(Kind.OUTPUT, name, within, within, Basis.REPORTED))
            return
        data = values.tobytes()
        record.observations.append(Observation(Kind.OUTPUT, name, digest_of(data), held, Basis.REPORTED))
        self.comparisons.append(Comparison(name, data, seen))
        wrong.add(f"{wrong.when} output {name!r}: {judgement.problem}", "gathered elements are not those of the pages")


def _is_row_major(place: Placement) -> bool:
    return place.strides == row_major(place.storage.shape, dtype_of(place.storage.dtype).itemsize)


def _held(place: Placement, start: int, end: int) -> Bytes:
    """A copy of the bytes, from ``start`` to ``end`` of its elements in row-major order, that a storage holds."""
    if _is_row_major(place):
        return place.file.bytes[place.offset + start : place.offset + end].copy()
    return place.array_in(place.file.bytes).reshape(-1).view(np.uint8)[start:end]


def _physical(place: Placement, byte: int) -> int:
    """Where byte ``byte`` of the elements in row-major order lies in the range."""
    if _is_row_major(place):
        return byte
    element, rest = divmod(byte, dtype_of(place.storage.dtype).itemsize)
    index = np.unravel_index(element, place.storage.shape)
    return sum(int(n) * stride for n, stride in zip(index, place.strides, strict=True)) + rest

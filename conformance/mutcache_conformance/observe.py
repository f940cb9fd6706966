"""Looks at memory and outputs after each step, and records what it saw as evidence.

Every byte of every file is compared with the image of what it must hold: storages, gaps between their strides, guard
bytes around them. Outputs that are caller's storage are held against its address, and a poke from outside must show
through them; only other outputs are taken from what the adapter reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mutcache_conformance.dtypes import dtype_of, number_of
from mutcache_conformance.evidence import Basis, Kind, Observation, StepRecord, digest_of
from mutcache_conformance.image import Difference, Image
from mutcache_conformance.memory import SPARSE_BYTES, Bytes, HarnessError, Memory, MemoryFile, Placement, row_major
from mutcache_conformance.oracle import Contents, OracleResult
from mutcache_conformance.overlay import Overlay
from mutcache_conformance.status import CaseEnded, Status
from mutcache_conformance.wording import a, tensor

#: An aliased output is read whole up to this size, beyond it only around the poke.
_WINDOW: Final = 1 << 16
_COPY: Final = "an output that must alias its storage is a copy"


@dataclass(frozen=True, slots=True)
class RunView:
    """A finished run as the child tells it.

    Attributes:
        outputs: what it says of each output: dtype, shape, nbytes, address.
        mutable: the storage of each mutable input.
        bound_outputs: the caller's storage of outputs.
        addresses: where the host mapped each of these, by value name.
        read: bytes of an output, from a row-major offset, as the adapter sees them.
    """

    outputs: Mapping[str, Mapping[str, Any]]
    mutable: Mapping[str, Placement]
    bound_outputs: Mapping[str, Placement]
    addresses: Mapping[str, int]
    read: Callable[[str, int, int], bytes]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides of a comparison of bytes that did not hold."""

    subject: str
    expected: bytes
    found: bytes


@dataclass(slots=True)
class _Wrong:
    """What is wrong after a step: for each thing why, and the cause without names and numbers of the case."""

    when: str
    reasons: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)

    def add(self, reason: str, cause: str) -> None:
        self.reasons.append(reason)
        self.causes.append(cause)

    def end(self) -> None:
        """End the case if anything is; the first two things are told, since the second often explains the first."""
        if self.reasons:
            raise CaseEnded(Status.FAIL, "\n".join(self.reasons[:2]), self.causes[0])


class Observer:
    """Knows what the memory of a case must hold, and compares.

    Every method that compares raises CaseEnded with status fail if something is not as it must be, and records what it
    compared in any case.

    Attributes:
        memory: the case's storages in memory.
        bases: where the child maps each file, by its name, as far as it was told.
        comparisons: both sides of comparisons of outputs that did not hold.
        unsettled: names of the files that runs in flight may write; what they hold is not compared.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.bases: dict[str, int] = {}
        self.unsettled: set[str] = set()
        self.comparisons: list[Comparison] = []
        self._images = {file.name: Image(file) for file in memory.files}
        #: What the files of storages that runs wrote had to hold before the latest of these, by storage.
        self._before: dict[str, Image] = {}

    def elements(self, placement: Placement) -> Contents:
        """The elements that a storage must hold now, as an array of its own; an Overlay if they are too many."""
        if placement.nbytes > SPARSE_BYTES:
            return Overlay(dtype_of(placement.storage.dtype), placement.storage.shape)
        return self._image(placement).elements(placement)

    def copy_elements(self, target: Placement, source: Placement) -> None:
        """Write to a storage, as its owner, the elements that another one must hold."""
        elements = self._image(source).elements(source)
        target.array_in(target.file.bytes)[...] = elements
        self._image(target).write_elements(target, elements)

    def expected_bytes(self, placement: Placement) -> bytes:
        """The bytes of the range that a storage must hold now."""
        return self._image(placement).read(placement.offset, placement.end).tobytes()

    def check_untouched(self, record: StepRecord, when: str) -> None:
        """Compare every byte of every file."""
        wrong = _Wrong(when)
        self._compare(record, (), wrong)
        wrong.end()

    def expect_prefix(
        self, record: StepRecord, mutable: Mapping[str, Placement], histories: Mapping[str, Sequence[Contents]]
    ) -> None:
        """After a refused run: each class holds what some prefix of its updates leaves, which is expected from now on.

        A class that holds none of them keeps its image, and so is found to differ.
        """
        for root, history in histories.items():
            if root not in mutable or len(history) < 2:
                continue
            place = mutable[root]
            holds = next((n for n, contents in enumerate(history) if self._holds(place, contents)), None)
            found = "none of them" if holds is None else f"{holds} of at most {len(history) - 1}"
            expected = f"0 to {len(history) - 1} whole updates" if holds is None else found
            record.observations.append(Observation(Kind.CONTENTS, place.storage.name, expected, found))

    def check_run(
        self, record: StepRecord, expected: OracleResult, run: RunView, when: str, *, is_readable: bool = True
    ) -> None:
        """After an accepted run: compare the outputs' forms and addresses, then memory, then what the outputs show.

        Outputs that are not readable, since another run of the binding has begun, show nothing.
        """
        wrong = _Wrong(when)
        written = self._expect_written(expected, run)
        if run.outputs.keys() != expected.outputs.keys():
            wrong.add(
                f"{when} the outputs are {sorted(run.outputs)}; the model's are {sorted(expected.outputs)}",
                "the outputs are not those of the model",
            )
        shown = [name for name in expected.outputs if name in run.outputs]
        sound = [name for name in shown if self._form_is_right(record, name, expected.outputs[name], run, wrong)]
        places = {name: _place_of(name, expected, run) for name in sound}
        for name, place in places.items():
            if place is not None:
                self._check_address(record, name, place, expected, run, wrong)
        self._compare(record, [place for place in written if place.file.name not in self.unsettled], wrong)
        for name, place in places.items() if is_readable else ():
            if place is not None:
                self._poke(record, name, place, run, wrong)
            else:
                self._check_value(record, name, expected.outputs[name], run, wrong)
        wrong.end()

    def expect_all(self, mutable: Mapping[str, Placement], histories: Mapping[str, Sequence[Contents]]) -> None:
        """After a refused run that another one follows at once: expect each class to hold what it could do at most."""
        for root, history in histories.items():
            if root in mutable:
                self._image(mutable[root]).write_elements(mutable[root], history[-1])

    def _expect_written(self, expected: OracleResult, run: RunView) -> list[Placement]:
        """Expect what the run has to write, and return where."""
        contents = [
            (place, expected.classes[root][-1]) for root, place in run.mutable.items() if root in expected.classes
        ]
        contents += [
            (place, expected.outputs[name])
            for name, place in run.bound_outputs.items()
            if name in expected.outputs and name not in expected.root_of_output
        ]
        for place, elements in contents:
            image = self._image(place)
            self._before[place.storage.name] = image.copy()
            image.write_elements(place, elements)
        return [place for place, _ in contents]

    # Memory

    def _holds(self, place: Placement, contents: Contents) -> bool:
        """Whether the storage holds these elements; they are expected of it from now on if so."""
        image = self._image(place)
        before = image.copy()
        image.write_elements(place, contents)
        if Image(place.file).digest(place.offset, place.end) == image.digest(place.offset, place.end):
            return True
        self._images[place.file.name] = before
        return False

    def _image(self, placement: Placement) -> Image:
        return self._images[placement.file.name]

    def _compare(self, record: StepRecord, written: Sequence[Placement], wrong: _Wrong) -> None:
        settled = [image for name, image in self._images.items() if name not in self.unsettled]
        differences = [(image, difference) for image in settled if (difference := image.difference())]
        stray = ""
        for image, difference in differences:
            if not any(_lies_in(image.file, difference.offset, place) for place in written):
                stray = stray or self._where(image.file, difference.offset)
        for place in written:
            expected = self._image(place).digest(place.offset, place.end)
            changed = any(image.file is place.file for image, _ in differences)
            found = Image(place.file).digest(place.offset, place.end) if changed else expected
            record.observations.append(Observation(Kind.CONTENTS, place.storage.name, expected, found))
        record.observations.append(
            Observation(Kind.UNTOUCHED, "every other byte", "unchanged", f"{stray} changed" if stray else "unchanged")
        )
        if differences:
            self._tell(*differences[0], record, wrong)

    def _tell(self, image: Image, difference: Difference, record: StepRecord, wrong: _Wrong) -> None:
        """Say which byte is the first that is not as it must be."""
        file, offset = image.file, difference.offset
        address = f" at address {self.bases[file.name] + offset:#x}" if file.name in self.bases else ""
        role = self._role(file, difference)
        more = "" if difference.count == 1 else f"; {difference.count} bytes differ"
        wrong.add(
            f"{wrong.when} {self._where(file, offset)}{address}: expected {difference.expected:#04x} ({role}), "
            f"found {difference.found:#04x}{self._elements(image, offset)}{more}",
            _cause(role, record),
        )

    def _place_at(self, file: MemoryFile, offset: int) -> Placement | None:
        """The storage that a byte of a file belongs to."""
        return next((place for place in self.memory.placements.values() if _lies_in(file, offset, place)), None)

    def _elements(self, image: Image, offset: int) -> str:
        """The values of the element that a byte belongs to, expected and found."""
        place = self._place_at(image.file, offset)
        at = place.element_at(offset - place.offset) if place is not None else None
        if place is None or at is None:
            return ""
        dtype = dtype_of(place.storage.dtype)
        start = offset - at[1]
        expected = image.read(start, start + dtype.itemsize).view(dtype)[0]
        found = image.file.bytes[start : start + dtype.itemsize].copy().view(dtype)[0]
        return _values(expected, found)

    def _where(self, file: MemoryFile, offset: int) -> str:
        """A byte of a file, in the words of the case."""
        nearest = ""
        for place in self.memory.placements.values():
            if place.file is not file:
                continue
            name = f"storage {place.storage.name!r}"
            byte = offset - place.offset
            if _lies_in(file, offset, place):
                element = place.element_at(byte)
                if element is None:
                    return f"byte {byte} of {name}, in a gap between its elements"
                return f"byte {byte} of {name} (element {list(element[0])})"
            side = f"{-byte} before" if byte < 0 else f"{offset - place.end + 1} after the end of"
            nearest = nearest or f"guard byte {side} {name}"
        return nearest

    def _role(self, file: MemoryFile, difference: Difference) -> str:
        """Whether the expected byte is one that the latest run had to write."""
        for place in self.memory.placements.values():
            before = self._before.get(place.storage.name)
            if before is None or not _lies_in(file, difference.offset, place):
                continue
            element = place.element_at(difference.offset - place.offset)
            if element is not None:
                old = before.read(difference.offset, difference.offset + 1)[0]
                return "unchanged by the run" if old == difference.expected else "written by the run"
        return "untouched"

    # Outputs

    def _form_is_right(self, record: StepRecord, name: str, expected: Contents, run: RunView, wrong: _Wrong) -> bool:
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

    def _check_address(
        self, record: StepRecord, name: str, place: Placement, expected: OracleResult, run: RunView, wrong: _Wrong
    ) -> None:
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

    def _poke(self, record: StepRecord, name: str, place: Placement, run: RunView, wrong: _Wrong) -> None:
        """Change a byte of the storage from outside; the output must show it at once, among what the storage holds."""
        nbytes = math.prod(place.storage.shape) * dtype_of(place.storage.dtype).itemsize
        if not nbytes:
            return
        at = (record.index * 7919 + 13) % nbytes
        start, end = (0, nbytes) if nbytes <= _WINDOW else (max(0, at - _WINDOW // 2), min(nbytes, at + 64))
        unpoked = _held(place, start, end)
        in_file = place.offset + _physical(place, at)
        try:
            place.file.bytes[in_file] ^= 0xFF
            seen = run.read(name, start, end - start)
        finally:
            place.file.bytes[in_file] ^= 0xFF
        must = unpoked.copy()
        must[at - start] ^= 0xFF
        observation = Observation(Kind.POKE, name, digest_of(must.tobytes()), digest_of(seen))
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
            byte, _ = _first_difference(seen, must.tobytes())
            self.comparisons.append(Comparison(name, must.tobytes(), seen))
            wrong.add(
                f"{wrong.when} byte {start + byte} of output {name!r} reads as {seen[byte]:#04x}; {storage}, which it "
                f"must alias, holds {int(must[byte]):#04x} there",
                "an output does not show what the storage that it must alias holds",
            )

    def _check_value(self, record: StepRecord, name: str, expected: Contents, run: RunView, wrong: _Wrong) -> None:
        if isinstance(expected, Overlay):
            raise HarnessError(f"output {name!r} of {expected.nbytes} bytes is no storage of the caller's")
        data = expected.tobytes()
        seen = run.read(name, 0, len(data)) if data else b""
        observation = Observation(Kind.OUTPUT, name, digest_of(data), digest_of(seen), Basis.REPORTED)
        record.observations.append(observation)
        if not observation.holds:
            byte, count = _first_difference(seen, data)
            element = [int(n) for n in np.unravel_index(byte // expected.itemsize, expected.shape)]
            first = byte - byte % expected.itemsize
            must, is_ = (np.frombuffer(side, expected.dtype, 1, first)[0] for side in (data, seen))
            self.comparisons.append(Comparison(name, data, seen))
            wrong.add(
                f"{wrong.when} byte {byte} of output {name!r} (element {element}): expected {data[byte]:#04x}, found "
                f"{seen[byte]:#04x}{_values(must, is_)}; {count} of {len(data)} bytes differ",
                "an output has wrong values",
            )


def _place_of(name: str, expected: OracleResult, run: RunView) -> Placement | None:
    """The caller's storage that an output must be, if there is any."""
    root = expected.root_of_output.get(name)
    return run.bound_outputs.get(name) if root is None else run.mutable.get(root)


def _cause(role: str, record: StepRecord) -> str:
    if record.answer == "rejected":
        return f"{a(record.operation)} that was refused has changed memory"
    if role == "written by the run":
        return "a run does not write what it must write"
    return f"{a(record.operation)} changes memory that it must not change"


def _values(expected: Any, found: Any) -> str:
    """An element in words. Some types warn of their special values when they are printed."""
    with np.errstate(all="ignore"):
        return f", so the element is {found!s} and not {expected!s}"


def _first_difference(seen: bytes, must: bytes) -> tuple[int, int]:
    """The first byte that differs, and how many do."""
    places = np.flatnonzero(np.frombuffer(seen, np.uint8) != np.frombuffer(must, np.uint8))
    return int(places[0]), len(places)


def _lies_in(file: MemoryFile, offset: int, place: Placement) -> bool:
    return place.file is file and place.offset <= offset < place.end


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

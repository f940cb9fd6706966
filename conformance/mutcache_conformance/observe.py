"""Looks at memory and outputs after each step, and records what it saw as evidence.

Every byte of every file is compared with the image of what it must hold: storages, gaps between their strides, guard
bytes around them. Outputs that are caller's storage are held against its address, and a poke from outside must show
through them; only other outputs are taken from what the adapter reads. Where caches are on a device, their storage
holds what the adapter has carried back from there, so that what is seen of memory is the adapter's report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mutcache.requirements import Req
from mutcache_conformance.case import Case, Storage
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.evidence import Basis, Kind, Observation, StepRecord
from mutcache_conformance.findings import Comparison, RunView, TableView, Wrong, values_differ
from mutcache_conformance.image import Difference, Image
from mutcache_conformance.memory import SPARSE_BYTES, Memory, MemoryFile, Placement
from mutcache_conformance.observe_outputs import OutputObserver
from mutcache_conformance.observe_pages import Examination, TableExaminer
from mutcache_conformance.oracle import Contents, OracleResult
from mutcache_conformance.oracle_pages import Pages
from mutcache_conformance.overlay import Overlay
from mutcache_conformance.peek import ProcessMemory
from mutcache_conformance.tables import HeldTable
from mutcache_conformance.wording import a, title

_UINT8: Final = 2


class Observer:
    """Knows what the memory of a case must hold, and compares.

    Every method that compares raises CaseEnded with status fail if something is not as it must be, and records what it
    compared in any case.

    Args:
        memory: the case's storages in memory.
        process: the memory of the child.
        case: the case.
        basis: who sees what caches hold.

    Attributes:
        memory: the case's storages in memory.
        tables: the page tables of the case as they are now, by name.
        bases: where the child maps each file, by its name, as far as it was told.
        comparisons: both sides of comparisons of outputs that did not hold.
        unsettled: names of the files that runs in flight may write; what they hold is not compared.
    """

    def __init__(self, memory: Memory, process: ProcessMemory, case: Case, basis: Basis) -> None:
        self.memory = memory
        self.tables = {table.name: HeldTable.of(table, memory.placements) for table in case.tables}
        self._process = process
        self._basis = basis
        self._wants_canonical = case.requirements[0] is Req.MC_QUANT_004
        self.bases: dict[str, int] = {}
        self.unsettled: set[str] = set()
        self.comparisons: list[Comparison] = []
        self._outputs = OutputObserver(self.comparisons, basis)
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

    def pages(self, table: str) -> Pages:
        """The pages that a table has now, with the bytes that they must hold."""
        return self.tables[table].images(self.expected_bytes)

    def renewed(self, name: str) -> HeldTable:
        """A table as it can be lent: payloads that runs made are given storage of the caller's, with what they hold."""
        table = self.tables[name]
        made = [number for number, page in enumerate(table.pages) if page.place is None]
        if made:
            storages = [
                Storage(f"{name}[{number}] made {len(self.memory.files)}", _UINT8, (len(content),), content)
                for number in made
                for content in (table.pages[number].content,)
            ]
            file = self.memory.add(storages)
            self._images[file.name] = Image(file)
            places = [self.memory.placements[storage.name] for storage in storages]
            table = table.placed(dict(zip(made, places, strict=True)))
        return replace(table, budget=table.lent.budget)

    def expected_bytes(self, placement: Placement) -> bytes:
        """The bytes of the range that a storage must hold now."""
        return self._image(placement).read(placement.offset, placement.end).tobytes()

    def check_untouched(self, record: StepRecord, when: str) -> None:
        """Compare every byte of every file."""
        wrong = Wrong(when)
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
            record.observations.append(Observation(Kind.CONTENTS, place.storage.name, expected, found, self._basis))

    def expect_table_prefix(
        self, record: StepRecord, views: Mapping[str, TableView], histories: Mapping[str, Sequence[Contents]]
    ) -> None:
        """After a refused run: each table is what some prefix of its updates leaves, and stays so from now on.

        Raises:
            CaseEnded: a table is none of them.
        """
        wrong = Wrong(f"after the refusal of {title(record)},")
        for root, view in views.items():
            examinations = (self._examiner(record, view).examine(pages) for pages in histories[root])
            found = next((one for one in examinations if not one.problems), None)
            self._take(record, view, found or self._examiner(record, view).examine(histories[root][0]), wrong)
        wrong.end()

    def _examiner(self, record: StepRecord, view: TableView) -> TableExaminer:
        return TableExaminer(
            view,
            self.tables[view.table],
            self._process,
            self._basis,
            step=record.index,
            wants_canonical=self._wants_canonical,
        )

    def _check_tables(self, record: StepRecord, expected: OracleResult, run: RunView, wrong: Wrong) -> None:
        """Examine every page of the tables that a run may have changed."""
        for root, view in run.tables.items():
            pages = expected.classes[root][-1]
            assert isinstance(pages, Pages)  # a table is bound to nothing but a container
            found = self._examiner(record, view).examine(pages, expected.retired[root])
            self._take(record, view, found, wrong)

    def _take(self, record: StepRecord, view: TableView, found: Examination, wrong: Wrong) -> None:
        """Take in what was found of a table: it is what is to be expected of it from now on."""
        record.observations += found.observations
        record.pages += found.pages
        self.comparisons += found.comparisons
        for place, content in found.held:
            self._image(place).write(place.offset, np.frombuffer(content, np.uint8))
        for reason, cause in found.problems:
            wrong.add(f"{wrong.when} {reason}", cause)
        if not found.problems:
            self.tables[view.table] = found.table

    def check_run(
        self, record: StepRecord, expected: OracleResult, run: RunView, when: str, *, is_readable: bool = True
    ) -> None:
        """After an accepted run: compare the outputs' forms and addresses, then memory, then what the outputs show.

        Outputs that are not readable, since another run of the binding has begun, show nothing.
        """
        wrong = Wrong(when)
        written = self._expect_written(expected, run)
        if run.outputs.keys() != expected.outputs.keys():
            record.observations.append(Observation.of_names("names of outputs", expected.outputs, run.outputs))
            wrong.add(
                f"{when} the outputs are {sorted(run.outputs)}; the model's are {sorted(expected.outputs)}",
                "the outputs are not those of the model",
            )
        self._check_tables(record, expected, run, wrong)
        tensors = {name: array for name, array in expected.outputs.items() if not isinstance(array, Pages)}
        shown = [name for name in tensors if name in run.outputs]
        sound = [name for name in shown if self._outputs.form_is_right(record, name, tensors[name], run, wrong)]
        places = {name: _place_of(name, expected, run) for name in sound}
        for name, place in places.items():
            if place is not None:
                self._outputs.check_address(record, name, place, expected, run, wrong)
        self._compare(record, [place for place in written if place.file.name not in self.unsettled], wrong)
        for name, place in places.items() if is_readable else ():
            if place is not None:
                self._outputs.poke(record, name, place, run, wrong)
            else:
                self._outputs.check_value(record, name, tensors[name], expected.gathered.get(name), run, wrong)
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

    def _compare(self, record: StepRecord, written: Sequence[Placement], wrong: Wrong) -> None:
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
            record.observations.append(Observation(Kind.CONTENTS, place.storage.name, expected, found, self._basis))
        others = f"{stray} changed" if stray else "unchanged"
        record.observations.append(Observation(Kind.UNTOUCHED, "every other byte", "unchanged", others, self._basis))
        if differences:
            self._tell(*differences[0], record, wrong)

    def _tell(self, image: Image, difference: Difference, record: StepRecord, wrong: Wrong) -> None:
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
        return values_differ(expected, found)

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


def _lies_in(file: MemoryFile, offset: int, place: Placement) -> bool:
    return place.file is file and place.offset <= offset < place.end

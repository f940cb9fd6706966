"""Looks at every page of a table after a step: its form, its address, its bytes, and what a poke shows through it.

Payloads of the caller's are seen in the memory that he shares, those that a run made in the memory of the process,
from outside; only where a process cannot be looked into is the adapter's word taken for what a page holds. Where
caches are on a device, that is so of all pages: the adapter has carried the caller's back, and reads the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from mutcache.proto.onnx_ml import QuantizationProto
from mutcache.requirements import Req
from mutcache_conformance.evidence import Basis, Encoding, Kind, Observation, PageRecord, digest_of
from mutcache_conformance.findings import Comparison, TableView, first_difference
from mutcache_conformance.memory import Placement
from mutcache_conformance.oracle_judge import Judgement, judge_page
from mutcache_conformance.oracle_pages import PageImage, Pages
from mutcache_conformance.peek import ProcessMemory
from mutcache_conformance.tables import HeldPage, HeldTable

#: A page is read whole through the adapter up to this size, beyond it only around the poke.
_WINDOW: Final = 1 << 16
#: So many pages that a step has not changed are poked.
_POKED: Final = 32
_UNMOVED: Final = "where it was"
_OWN: Final = "memory of its own"
_CAUSES: Final[Mapping[Req, str]] = {
    Req.MC_PAGED_002: "a run changes bytes of a page that it must not change",
    Req.MC_PAGED_003: "rows of a new page that nothing was written to are not zero bytes",
    Req.MC_QUANT_001: "a payload has another size than its declaration gives it",
    Req.MC_QUANT_003: "an element is encoded with an error beyond the bound",
    Req.MC_QUANT_005: "a NaN or an infinity is not encoded as it must be",
}


@dataclass(slots=True)
class Examination:
    """What was found of a table.

    Attributes:
        table: as it is now.
        observations: what was compared.
        pages: a record of each page.
        problems: for each thing that is wrong why, and the cause without names and numbers.
        held: what payloads of the caller's hold now, which is to be expected of them from now on.
        comparisons: both sides of comparisons of payloads that did not hold.
    """

    table: HeldTable
    observations: list[Observation] = field(default_factory=list)
    pages: list[PageRecord] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    held: list[tuple[Placement, bytes]] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    def hold(self, observation: Observation, reason: str, cause: str) -> bool:
        """Take an observation in; whether it holds."""
        self.observations.append(observation)
        if not observation.holds:
            self.problems.append((reason, cause))
        return observation.holds


class TableExaminer:
    """Examines a table after a step.

    Args:
        view: what the child tells of it.
        table: the table before the step.
        process: the memory of the child.
        basis: who sees what caches hold; reported, the payloads that runs make are in the memory of a device.
        step: the number of the step, from which the bytes that are poked follow.
        wants_canonical: whether an encoding that is not the canonical encoder's is wrong.
    """

    def __init__(
        self,
        view: TableView,
        table: HeldTable,
        process: ProcessMemory,
        basis: Basis,
        *,
        step: int,
        wants_canonical: bool = False,
    ) -> None:
        self._view, self._value, self._table = view, view.value, table
        self._process, self._basis, self._step, self._wants_canonical = process, basis, step, wants_canonical
        #: Whether the memory of the process shows what a run has made. Addresses elsewhere are of another space.
        self._is_local = basis is Basis.OBSERVED
        #: Each page that was told of, and its number in the answer.
        self._told = list(enumerate(view.told["pages"]))
        if table.lent.container == "map":
            self._told.sort(key=lambda page: int(page[1].get("key", 0)))

    def examine(self, expected: Pages, retired: Sequence[PageImage] = ()) -> Examination:
        """Hold the table against what it must be.

        Args:
            expected: what the step makes of it; the identity of a page is its number in the table before.
            retired: pages of that table whose payloads are not in it any more.
        """
        found = Examination(replace(self._table, pages=(), budget=expected.budget))
        if not self._structure_is_right(expected, found):
            return found
        assert expected.form is not None  # the oracle has set it
        quantizations = expected.form.quantizations
        pages = [self._examine_page(page, number, quantizations, found) for number, page in enumerate(expected.pages)]
        found.table = replace(found.table, pages=tuple(pages))
        self._check_disjoint(found)
        for page in retired:
            self._examine_retired(page, quantizations, found)
        return found

    def _label(self, page: PageImage | HeldPage, number: int) -> str:
        return f"{self._value}[{number if page.key is None else page.key}]"

    def _structure_is_right(self, expected: Pages, found: Examination) -> bool:
        """Whether the table has the pages that it must have, by their number or keys."""
        told, keys = self._view.told["container"], [page.get("key") for _, page in self._told]
        must = [None if page.key is None else str(page.key) for page in expected.pages]
        wanted, is_ = f"{expected.container} of pages {_listed(must)}", f"{told} of pages {_listed(keys)}"
        return found.hold(
            Observation(Kind.OUTPUT, f"{self._value}: pages", wanted, is_, Basis.REPORTED),
            f"table {self._value!r} is a {is_}; expected is a {wanted}",
            "a table has other pages than it must have",
        )

    def _examine_page(
        self, image: PageImage, number: int, quantizations: Sequence[QuantizationProto], found: Examination
    ) -> HeldPage:
        """The page as it is now. A page that was there before keeps its payload, whatever the child says."""
        label = self._label(image, number)
        before = self._table.pages[image.identity] if image.identity >= 0 else None
        page = HeldPage(image.quantized_type, image.dims, len(image.payload), image.key)
        if before is not None:
            page = replace(page, place=before.place, address=before.address)
        index, told = self._told[number]
        is_sound = self._form_is_right(label, image, told, found)
        address = None if told["address"] is None else int(told["address"])
        if address is not None and image.payload:
            is_sound &= self._address_is_right(label, before, page, address, found)
            page = replace(page, address=address if before is None or before.place is None else page.address)
        content, basis = self._content(label, page, index if is_sound else None, found)
        if content is None:
            return page
        judgement = judge_page(image, content, quantizations)
        encoding = self._judge(label, image, content, basis, judgement, found)
        owner = "runtime" if page.place is None else "caller"
        found.pages.append(PageRecord(label, image.quantized_type, len(content), owner, encoding, basis))
        if page.place is not None:
            found.held.append((page.place, content))
        is_due = image.is_fresh or (number + self._step) % max(1, len(self._table.pages) // _POKED) == 0
        can_be_poked = page.place is not None or basis is Basis.OBSERVED
        if is_sound and content and is_due and can_be_poked:
            self._poke(label, page, index, content, number, found)
        return page if page.place is not None else replace(page, content=content)

    def _form_is_right(self, label: str, image: PageImage, told: Mapping[str, Any], found: Examination) -> bool:
        observation = Observation(
            Kind.OUTPUT,
            f"{label}: form",
            f"of type {image.quantized_type}, dims {list(image.dims)}, {len(image.payload)} bytes",
            f"of type {told['quantized_type']}, dims {told['dims']}, {told['nbytes']} bytes",
            Basis.REPORTED,
        )
        return found.hold(
            observation,
            f"page {label} is {observation.found}; expected is one {observation.expected}",
            "a page has another type, other dims or another size than it must have",
        )

    def _address_is_right(
        self, label: str, before: HeldPage | None, page: HeldPage, address: int, found: Examination
    ) -> bool:
        if before is not None:
            is_there = before.address in (None, address)
            observation = Observation(
                Kind.ADDRESS, label, _UNMOVED, _UNMOVED if is_there else "elsewhere", Basis.REPORTED
            )
            return found.hold(
                observation,
                f"the payload of page {label} is at address {address:#x}; it was, and must stay, at {before.address:#x}"
                if before.address is not None
                else "",
                "a payload has moved",
            )
        lent = self._view.lent if self._is_local else ()
        is_ours = any(base < address + page.nbytes and address < base + file.nbytes for file, base in lent)
        observation = Observation(Kind.ADDRESS, label, _OWN, "the caller's memory" if is_ours else _OWN, Basis.REPORTED)
        return found.hold(
            observation,
            f"the payload of page {label}, which the run made, is at address {address:#x}, in memory of the caller's",
            "a payload that a run makes lies in memory of the caller's",
        )

    def _content(self, label: str, page: HeldPage, index: int | None, found: Examination) -> tuple[bytes | None, Basis]:
        """What a payload holds, and who saw it; None if nobody can tell."""
        if page.place is not None:
            return page.place.file.bytes[page.place.offset : page.place.offset + page.nbytes].tobytes(), self._basis
        if page.address is not None and self._is_local and self._process.is_open:
            content = self._process.read(page.address, page.nbytes)
            if content is None:
                found.hold(
                    Observation(Kind.ADDRESS, f"{label}: memory", "there", "not there"),
                    f"the payload of page {label} is said to be at address {page.address:#x}, where no memory is",
                    "an address is false",
                )
            return content, Basis.OBSERVED
        if index is not None:
            return self._view.read(self._value, 0, page.nbytes, page=index), Basis.REPORTED
        return None, Basis.REPORTED

    def _judge(
        self,
        label: str,
        image: PageImage,
        content: bytes,
        basis: Basis,
        judgement: Judgement,
        found: Examination,
    ) -> Encoding:
        """Take in what a payload holds."""
        if judgement.problem:
            observation = Observation(Kind.CONTENTS, label, digest_of(image.payload), digest_of(content), basis)
            cause = _CAUSES.get(judgement.requirement, "") if judgement.requirement is not None else ""
            found.hold(observation, f"page {label}: {judgement.problem}", cause or "a page holds wrong bytes")
            found.comparisons.append(Comparison(label, image.payload, content))
            return Encoding.WRONG
        if judgement.is_exact:
            held = digest_of(content)
            found.observations.append(Observation(Kind.CONTENTS, label, held, held, basis))
            return Encoding.CANONICAL if image.is_fresh else Encoding.NONE
        within = f"{digest_of(content)}, within the bound"
        found.observations.append(Observation(Kind.CONTENTS, label, within, within, basis))
        if self._wants_canonical:
            byte, count = first_difference(content, image.payload)
            found.hold(
                Observation(Kind.CONTENTS, f"{label}: canonical", digest_of(image.payload), digest_of(content), basis),
                f"page {label} is within the bound, and not what the canonical encoder makes: byte {byte} is "
                f"{content[byte]:#04x} and not {image.payload[byte]:#04x}; {count} of {len(content)} bytes differ",
                "an encoded payload is not that of the canonical encoder",
            )
            found.comparisons.append(Comparison(label, image.payload, content))
        return Encoding.BOUNDED

    def _poke(self, label: str, page: HeldPage, index: int, content: bytes, number: int, found: Examination) -> None:
        """Change a byte of a payload from outside; the page must show it at once, among what the payload holds."""
        at = (self._step * 7919 + number * 31 + 13) % len(content)
        is_small = len(content) <= _WINDOW
        start, end = (0, len(content)) if is_small else (max(0, at - _WINDOW // 2), min(len(content), at + 64))
        if not self._flip(page, at):
            return
        try:
            seen = self._view.read(self._value, start, end - start, page=index)
        finally:
            self._flip(page, at)
        must = bytearray(content[start:end])
        must[at - start] ^= 0xFF
        observation = Observation(Kind.POKE, label, digest_of(bytes(must)), digest_of(seen), self._basis)
        if seen == content[start:end]:
            reason = f"byte {at} of the payload of page {label} was changed from outside, and the page does not show it"
            found.hold(observation, f"{reason}: it is a copy", "a page is a copy of its payload")
            return
        byte = first_difference(seen, bytes(must))[0] if not observation.holds else 0
        found.hold(
            observation,
            f"byte {start + byte} of page {label} reads as {seen[byte]:#04x}; its payload holds {must[byte]:#04x}",
            "a page does not show what its payload holds",
        )

    def _flip(self, page: HeldPage, byte: int) -> bool:
        """Change every bit of a byte of a payload."""
        if page.place is not None:
            page.place.file.bytes[page.place.offset + byte] ^= 0xFF
            return True
        return page.address is not None and self._process.flip(page.address + byte)

    def _check_disjoint(self, found: Examination) -> None:
        """No two payloads share a byte. Addresses of the process and of a device have nothing to do with each other."""
        ranges = sorted(
            (self._is_local or page.place is not None, page.address, page.address + page.nbytes, label)
            for number, page in enumerate(found.table.pages)
            for label in (self._label(page, number),)
            if page.address is not None and page.nbytes
        )
        for (space, _, end, one), (other_space, start, _, other) in pairwise(ranges):
            if space == other_space and start < end:
                found.hold(
                    Observation(Kind.ADDRESS, other, _OWN, f"overlaps {one}", Basis.REPORTED),
                    f"the payloads of pages {one} and {other} overlap: addresses {start:#x} to {end:#x} belong to both",
                    "payloads overlap",
                )

    def _examine_retired(
        self, image: PageImage, quantizations: Sequence[QuantizationProto], found: Examination
    ) -> None:
        """A payload of the caller's that another one replaced holds what it held then."""
        place = self._table.pages[image.identity].place
        if place is None:
            return
        label = f"{self._label(self._table.pages[image.identity], image.identity)}: replaced payload"
        content = place.file.bytes[place.offset : place.offset + len(image.payload)].tobytes()
        found.held.append((place, content))
        judgement = judge_page(image, content, quantizations)
        held = digest_of(content)
        expected = digest_of(image.payload) if judgement.problem else held
        found.hold(
            Observation(Kind.CONTENTS, label, expected, held, self._basis),
            f"{label}, which returns to the caller, has changed: {judgement.problem}",
            "a payload that was replaced has changed",
        )


def _listed(keys: Sequence[str | None]) -> str:
    """Pages by their keys, or how many there are."""
    return f"{len(keys)}" if all(key is None for key in keys) else f"{len(keys)} with keys {', '.join(map(str, keys))}"

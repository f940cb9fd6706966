"""What the harness saw: one record per step, one observation per thing looked at.

Evidence holds only what is the same in every run of a deterministic runtime (no addresses, no times), so that its
digest can be compared between runs and a verdict can be computed again from it.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self


class Basis(enum.StrEnum):
    """Who saw it: the harness itself, or the adapter, whose word is taken for it."""

    OBSERVED = "observed"
    REPORTED = "reported"


class Kind(enum.StrEnum):
    """What was looked at."""

    #: The bytes of a storage that the step may write.
    CONTENTS = "contents"
    #: Every other byte: other storages, gaps between strides, guard bytes.
    UNTOUCHED = "untouched"
    #: The address of an output against that of the storage bound for it.
    ADDRESS = "address"
    #: A byte of the storage changed from outside, seen through the output.
    POKE = "poke"
    #: Type, shape and bytes of an output, as the adapter reads them.
    OUTPUT = "output"
    #: Memory that the process took; the figures, which are never twice the same, are no part of the evidence.
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Observation:
    """One comparison. ``expected`` and ``found`` are digests or short texts, equal exactly when it holds."""

    kind: Kind
    subject: str
    expected: str
    found: str
    basis: Basis = Basis.OBSERVED

    @classmethod
    def of_names(cls, subject: str, expected: Iterable[str], found: Iterable[str]) -> Self:
        """A comparison of names that a child gives."""
        sides = [" ".join(sorted(names)) for names in (expected, found)]
        return cls(Kind.OUTPUT, subject, sides[0], sides[1], Basis.REPORTED)

    @property
    def holds(self) -> bool:
        """Whether what was found is what was expected."""
        return self.expected == self.found

    def to_json(self) -> dict[str, str]:
        """The observation as it stands in report.json."""
        return {
            "kind": self.kind.value,
            "subject": self.subject,
            "expected": self.expected,
            "found": self.found,
            "basis": self.basis.value,
        }


class Encoding(enum.StrEnum):
    """What a page is, beside what the canonical encoder would have made of it."""

    #: The step encoded nothing of it.
    NONE = "none"
    #: Byte for byte the same.
    CANONICAL = "canonical"
    #: Other bytes, within the bound of the declaration.
    BOUNDED = "bounded"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class PageRecord:
    """A page after a step.

    Attributes:
        page: which one: ``cache[3]``; the number is the key in a map.
        quantized_type: index of its declaration.
        nbytes: bytes of its payload.
        owner: ``caller`` or ``runtime``: whose memory the payload lies in.
        encoding: what it is, beside the canonical encoder's.
        basis: who saw the bytes.
    """

    page: str
    quantized_type: int
    nbytes: int
    owner: str
    encoding: Encoding
    basis: Basis

    def to_json(self) -> dict[str, Any]:
        """The record as it stands in report.json."""
        return {
            "page": self.page,
            "quantized_type": self.quantized_type,
            "nbytes": self.nbytes,
            "owner": self.owner,
            "encoding": self.encoding.value,
            "basis": self.basis.value,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The record that ``to_json`` wrote."""
        return cls(**{**data, "encoding": Encoding(data["encoding"]), "basis": Basis(data["basis"])})


@dataclass(slots=True)
class StepRecord:
    """One step of a script.

    Attributes:
        index: its place in the script.
        operation: load, bind, run, start, finish, release, unload or write.
        allowed: phases in which a refusal is right; empty when the step must succeed.
        answer: what the child answered (ok, rejected, ...), or crash, timeout, garbage, skipped.
        phase: the phase that a rejection named, or "".
        requirement: the requirement that a rejection named, or "".
        observations: what was compared after the answer.
        pages: every page of the tables that the step may have changed.
    """

    index: int
    operation: str
    allowed: tuple[str, ...] = ()
    answer: str = ""
    phase: str = ""
    requirement: str = ""
    observations: list[Observation] = field(default_factory=list)
    pages: list[PageRecord] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The record as it stands in report.json."""
        return {
            "index": self.index,
            "operation": self.operation,
            "allowed": list(self.allowed),
            "answer": self.answer,
            "phase": self.phase,
            "requirement": self.requirement,
            "observations": [observation.to_json() for observation in self.observations],
            **({"pages": [page.to_json() for page in self.pages]} if self.pages else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The record that ``to_json`` wrote."""
        return cls(
            index=data["index"],
            operation=data["operation"],
            allowed=tuple(data["allowed"]),
            answer=data["answer"],
            phase=data["phase"],
            requirement=data["requirement"],
            observations=[
                Observation(Kind(item["kind"]), item["subject"], item["expected"], item["found"], Basis(item["basis"]))
                for item in data["observations"]
            ],
            pages=[PageRecord.from_json(page) for page in data.get("pages", ())],
        )


@dataclass(slots=True)
class Evidence:
    """The records of one case, in the order of its script."""

    steps: list[StepRecord] = field(default_factory=list)

    def to_json(self) -> list[dict[str, Any]]:
        """The evidence as it stands in report.json."""
        return [step.to_json() for step in self.steps]

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> Self:
        """The evidence that ``to_json`` wrote."""
        return cls([StepRecord.from_json(step) for step in data])

    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(canonical_json(self.to_json())).hexdigest()


def canonical_json(value: Any) -> bytes:
    """The one serialization of a JSON value that digests are computed of: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(data: bytes | memoryview) -> str:
    """A short digest of some bytes for an observation; 64 bits tell two contents apart in a report."""
    return hashlib.sha256(data).hexdigest()[:16]

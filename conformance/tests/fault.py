"""What is said of a faulty runtime: by which requirement, in which cases and with which words it is found out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hooked_runtime import Sound

from mutcache.requirements import Req
from mutcache_conformance.status import Status

#: Cases that most faults have nothing to do with: a positive one, a refused binding, a refused model.
UNTOUCHED: Final = ("dense-001/seed-example", "bind-002/read-only", "alias-011/read-after")


@dataclass(frozen=True)
class Fault:
    """How a faulty runtime is found out.

    Attributes:
        adapter: the runtime; its docstring is the idea.
        requirement: the requirement that it breaks.
        fails: cases that it fails; the first one is about that requirement.
        words: part of the reason given for the first.
        untouched: cases that have nothing to do with the fault, and pass.
        status: what becomes of the first case.
        nonce: what the cases are drawn from.
    """

    adapter: type[Sound]
    requirement: Req
    fails: tuple[str, ...]
    words: str
    untouched: tuple[str, ...] = UNTOUCHED
    status: Status = Status.FAIL
    nonce: int = 0

    @property
    def name(self) -> str:
        """What the fault is called; a runtime may be found out by two requirements."""
        return f"{self.adapter.__name__}-{self.requirement}"

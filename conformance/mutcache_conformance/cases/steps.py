"""Cases of one update: a binding, and in it one step after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mutcache.requirements import Req
from mutcache_conformance.case import RUN, Case
from mutcache_conformance.cases.scene import Scene
from mutcache_conformance.cases.update import Update

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

#: One step: a position (or one for each row of the batch) and a number of rows.
Step = tuple[int | Sequence[int], int]


def accepted(
    what: str, requirements: tuple[Req, ...], title: str, update: Update, *steps: Step, optional: str = ""
) -> Case:
    """All steps succeed, one after the other in one binding."""
    scene = Scene().load(update.model()).bind(update.cache())
    for number, (position, length) in enumerate(steps, 1):
        scene.run(update.step(position, length=length, tag=f"_{number}"))
    scene.release().unload()
    needs = frozenset({f"dtype:{optional}"}) if optional else frozenset[str]()
    return scene.case(what, requirements, title, needs=needs, required=not optional)


def refused(
    what: str, requirements: tuple[Req, ...], title: str, update: Update, *steps: Step, twin: str, at: int = 0
) -> Case:
    """The step of number ``at`` is refused; the others succeed, those after it in the same binding."""
    scene = Scene().load(update.model()).bind(update.cache())
    for number, (position, length) in enumerate(steps):
        feeds = update.step(position, length=length, tag=f"_{number + 1}")
        scene.run(feeds, refused=RUN if number == at else frozenset())
    return scene.release().unload().case(what, requirements, title, twin=twin)

"""Cases of one table in one binding, and in it one update after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Profile, Req
from mutcache_conformance.case import BIND, RUN, Case
from mutcache_conformance.cases.paged_words import CONTROL_FLOW, Paged, Step
from mutcache_conformance.cases.scene import NEVER, Scene, Table

Requirements = tuple[Req, ...]
NOTHING: Final = frozenset[str]()


def accepted(
    what: str,
    requirements: Requirements,
    title: str,
    paged: Paged,
    table: Table,
    *steps: Step,
    gathered: Sequence[int] = (),
    needs: frozenset[str] = NOTHING,
) -> Case:
    """All steps succeed, one after the other in one binding. Each gathers its page, or those of ``gathered``."""
    return _played(what, requirements, title, paged, table, steps, gathered, needs=needs)


def refused(
    what: str,
    requirements: Requirements,
    title: str,
    paged: Paged,
    table: Table,
    *steps: Step,
    twin: str,
    at: int = 0,
    gathered: Sequence[int] = (),
    needs: frozenset[str] = NOTHING,
) -> Case:
    """The step of number ``at`` is refused; the others succeed, those after it in the same binding."""
    return _played(what, requirements, title, paged, table, steps, gathered, needs=needs, twin=twin, at=at)


def _played(
    what: str,
    requirements: Requirements,
    title: str,
    paged: Paged,
    table: Table,
    steps: Sequence[Step],
    gathered: Sequence[int],
    *,
    needs: frozenset[str],
    twin: str = "",
    at: int = -1,
) -> Case:
    scene = Scene().load(paged.model()).bind({paged.draw.name("cache"): table})
    for number, step in enumerate(steps):
        feeds = paged.step(step, gathered, tag=f"_{number + 1}")
        scene.run(feeds, refused=RUN if number == at else NEVER)
    scene.release().unload()
    return scene.case(what, requirements, title, twin=twin, needs=needs, required=not needs)


def bound(
    what: str,
    requirements: Requirements,
    title: str,
    paged: Paged,
    table: Table,
    *,
    model: ModelProto | None = None,
    twin: str = "",
    profile: Profile | None = None,
) -> Case:
    """A table is bound, and after it another one, which is always right.

    With a ``twin`` the first is refused; without one it is updated, as the second is.
    """
    scene = Scene().load(model or paged.model())
    cache, step = paged.draw.name("cache"), (0, 1, 2)
    scene.bind({cache: table}, "first", refused=BIND if twin else NEVER)
    if not twin:
        scene.run(paged.step(step, tag="_1"), "first").release("first")
    good = paged.table(*paged.formats[:2], name="good", keys=(3, 5) if paged.kind == "map" else ())
    page = 3 if paged.kind == "map" else 0
    scene.bind({cache: good}, "second").run(paged.step((page, 0, 1), tag="_2"), "second").release("second")
    return scene.unload().case(what, requirements, title, twin=twin, profile=profile)


def with_page(table: Table, number: int, **changes: object) -> Table:
    """The table, with one of its pages described in another way."""
    pages = list(table.table.pages)
    pages[number] = replace(pages[number], **changes)  # type: ignore[arg-type]  # fields of Page
    return replace(table, table=replace(table.table, pages=tuple(pages)))


def with_flow(scene: Scene, what: str, requirements: Requirements, title: str, *, twin: str = "") -> Case:
    """The case of a script that needs control flow, too."""
    return scene.case(what, requirements, title, twin=twin, needs=CONTROL_FLOW, required=False)

"""PAGED: updates that fail as a whole, and memory for pages that is refused."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import RUN, Case, Storage
from mutcache_conformance.cases.builder import model
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.formats import FORMATS
from mutcache_conformance.cases.paged_steps import accepted, refused
from mutcache_conformance.cases.paged_words import PAGE_BUDGET, Paged, Step
from mutcache_conformance.cases.scene import NEVER, Scene

ALL = tuple(FORMATS)


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _atomic(nonce)
    yield from _budget(nonce)
    yield from _budget_of_chains(nonce)


def _atomic(nonce: int) -> Iterator[Case]:
    """Updates that fail after a part of them could have been done."""
    yield from _atomic_creation(nonce)
    paged = Paged(Draw(nonce, "paged atomic"), ALL, typed=True)
    table, recovery = paged.table("int8", "int4", "fp8"), (1, paged.draw.integer("recovery", 0, 2), 2, "int4")
    for word, page, kind, done in (
        ("create-typed", 3, "int2", "made"),
        ("change", 1, "identity", "changed"),
        ("change-in-place", 1, "nvfp4", "changed in place"),
    ):
        twin = f"paged-012/{word}"
        requirements = (Req.MC_PAGED_012, Req.MC_PAGED_005)
        title = f"A page is {done} and its last rows are written."
        steps: tuple[Step, Step] = (page, 2, 2, kind), recovery
        yield accepted(twin, requirements, title, paged, table, *steps, gathered=(0, 2))
        for what, position, title in (
            ("overflow", 3, f"A row does not fit: the page is not {done} either."),
            ("negative", -1, f"The position is negative: the page is not {done} either."),
        ):
            steps = (page, position, 2, kind), recovery
            yield refused(
                f"paged-012/{word}-{what}",
                requirements,
                title,
                paged,
                table,
                *steps,
                twin=twin,
                gathered=(0, 2),
            )
    yield from _failing_chains(nonce)


def _atomic_creation(nonce: int) -> Iterator[Case]:
    requirements = (Req.MC_PAGED_012, Req.MC_PAGED_005, Req.MC_PAGED_003)
    paged = Paged(Draw(nonce, "paged atomic creation"), ("int4",), ("int4",))
    table, recovery = paged.table("int4", "int4"), (1, paged.draw.integer("recovery", 0, 2), 2)
    twin = "paged-012/create"
    title = "A page is made, and its last rows are written."
    yield accepted(twin, requirements, title, paged, table, (2, 2, 2), recovery, gathered=(0, 1))
    for what, step, title in (
        ("overflow", (2, 3, 2), "A row does not fit: the page is not made either."),
        ("negative", (2, -1, 2), "The position is negative: the page is not made either."),
        ("no-rows", (2, 5, 0), "There are no rows, at a position behind the page: it is not made."),
    ):
        yield refused(
            f"paged-012/create-{what}",
            requirements,
            title,
            paged,
            table,
            step,
            recovery,
            twin=twin,
            gathered=(0, 1),
        )


def _failing_chains(nonce: int) -> Iterator[Case]:
    """Two updates of one table, of which the second fails: the first is there as a whole, or not at all."""
    paged = Paged(Draw(nonce, "paged chains"), ("int8",), ("int8",), gathers=False)
    name, made = paged.draw.name, _two_updates(paged)

    def script(first: Step, second: Step, *, refused: bool = False) -> Scene:
        scene = Scene().load(made).bind({name("cache"): paged.table("int8", "int8")})
        scene.run(_both(paged, first, second, "1"), refused=RUN if refused else NEVER)
        scene.run(_both(paged, (0, 0, 2), (1, 1, 2), "2"))
        return scene.release().unload()

    requirement = (Req.MC_PAGED_012,)
    one, other = (0, 1, 2), (1, 2, 2)
    twin = "paged-012/chain"
    yield script(one, other).case(twin, requirement, "Two updates of pages that are there.")
    for what, second, title in (
        ("second-overflows", (1, 3, 2), "The second does not fit its page."),
        ("second-leaves-gap", (3, 2, 2), "The second leaves a page out."),
        ("second-unknown", (-1, 2, 2), "The second is of page -1."),
    ):
        scene = script(one, second, refused=True)
        also = Req.MC_PAGED_005 if what == "second-overflows" else Req.MC_PAGED_004
        yield scene.case(f"paged-012/chain-{what}", (*requirement, also), title, twin=twin)
    twin = "paged-012/chain-creates"
    title = "The first makes a page, the second writes it."
    yield script((2, 0, 2), (2, 2, 2)).case(twin, (*requirement, Req.MC_PAGED_003), title)
    scene = script((2, 0, 2), (2, 3, 2), refused=True)
    title = "The first makes a page, the second does not fit it."
    yield scene.case("paged-012/chain-creates-overflows", (*requirement, Req.MC_PAGED_005), title, twin=twin)


def _two_updates(paged: Paged) -> ModelProto:
    """A model of one update after the other."""
    inputs = [paged.container("cache", mutable=True), *paged.operands("_a"), *paged.operands("_b")]
    nodes = [paged.update("cache", "between", "_a"), paged.update("between", "updated_cache", "_b")]
    return paged.declare(model(inputs, nodes, [paged.container("updated_cache", root="cache")]))


def _both(paged: Paged, first: Step, second: Step, run: str) -> dict[str, Storage]:
    return {**paged.operands_of(first, f"_a{run}", "_a"), **paged.operands_of(second, f"_b{run}", "_b")}


def _budget(nonce: int) -> Iterator[Case]:
    """Memory for pages that is refused."""
    requirement = (Req.MC_PAGED_012, Req.MC_PAGED_001)
    paged = Paged(Draw(nonce, "paged budget"), ALL, typed=True)
    row = paged.draw.integer("row", 0, 2)
    kinds, recovery = ("int8", "int4"), (0, row, 2, "int8")

    def budget(what: str, title: str, nbytes: int, *steps: Step, twin: str = "", at: int = 0) -> Case:
        table = paged.table(*kinds, budget=nbytes)
        if not twin:
            return accepted(
                what, requirement, title, paged, table, *steps, recovery, gathered=(0, 1), needs=PAGE_BUDGET
            )
        return refused(
            what,
            requirement,
            title,
            paged,
            table,
            *steps,
            recovery,
            twin=twin,
            at=at,
            gathered=(0, 1),
            needs=PAGE_BUDGET,
        )

    size = paged.nbytes
    made, changed, later = (2, row, 2, "int2"), (1, row, 1, "identity"), (3, 0, 1, "fp8")
    yield budget(
        "paged-012/no-budget-needed", "Updates of pages that are there allocate nothing.", 0, (0, row, 2, "int8")
    )
    title = "A change to a type of equal size allocates nothing."
    yield budget("paged-012/no-budget-in-place", title, 0, (1, row, 2, "nvfp4"))
    twin = "paged-012/budget-create"
    yield budget(twin, "There is memory for just the page that is made.", size("int2"), made)
    title = "There is one byte too little for the page that is made."
    yield budget("paged-012/budget-create-refused", title, size("int2") - 1, made, twin=twin)
    twin = "paged-012/budget-change"
    yield budget(twin, "There is memory for just the page as it will be.", size("identity"), changed)
    title = "There is one byte too little for the page as it will be: it stays as it was."
    yield budget("paged-012/budget-change-refused", title, size("identity") - 1, changed, twin=twin)
    twin = "paged-012/budget-second"
    yield budget(twin, "There is memory for two pages.", size("int2") + size("fp8"), made, later)
    title = "There is memory for the first of two pages."
    yield budget("paged-012/budget-second-refused", title, size("int2") + size("fp8") - 1, made, later, twin=twin, at=1)


def _budget_of_chains(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PAGED_012, Req.MC_PAGED_003)
    paged = Paged(Draw(nonce, "paged budget of chains"), ("int8",), ("int8",), gathers=False)
    name, made, size = paged.draw.name, _two_updates(paged), paged.nbytes("int8")

    def script(nbytes: int, *, refused: bool) -> Scene:
        scene = Scene().load(made).bind({name("cache"): paged.table("int8", "int8", budget=nbytes)})
        scene.run(_both(paged, (2, 0, 1), (3, 1, 1), "1"), refused=RUN if refused else NEVER)
        return scene.run(_both(paged, (0, 1, 2), (1, 2, 1), "2")).release().unload()

    def case(scene: Scene, what: str, title: str, twin: str = "") -> Case:
        return scene.case(what, requirement, title, twin=twin, needs=PAGE_BUDGET, required=False)

    twin = "paged-012/budget-chain"
    yield case(script(2 * size, refused=False), twin, "There is memory for the two pages that one run makes.")
    title = "There is memory for the first of the two pages that one run makes."
    yield case(script(2 * size - 1, refused=True), "paged-012/budget-chain-refused", title, twin)

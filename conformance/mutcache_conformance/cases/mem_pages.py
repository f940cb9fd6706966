"""MEM: what pages take of memory, measured while runs make them or change their types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from onnx import TensorProto as Stock

from mutcache.proto.onnx_ml import ModelProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case, Measure, Page, PageTable, Storage
from mutcache_conformance.cases.builder import initializer, model, node
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.paged_words import Paged, Step, paged_update
from mutcache_conformance.cases.scene import Scene, Table

#: Pages that count have 1 MiB of INT8 codes, those that warm the process up some kilobytes.
_LARGE: Final = (1, 4096, 256)
_SMALL: Final = (1, 32, 256)
#: Updates of a run.
_PER_RUN: Final = 16
_MADE: Final = (Req.MC_MEM_003, Req.MC_PAGED_010)
_CHANGED: Final = (Req.MC_MEM_004, Req.MC_PAGED_008)


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    draw = Draw(nonce, "mem pages")
    title = "64 pages of 1 MiB are made, 16 a run."
    yield _measured(
        "mem-003/created",
        _MADE,
        title,
        draw,
        "sequence",
        lent=0,
        runs=[(0, "int8"), (16, "int8"), (32, "int8"), (48, "int8")],
    )
    title = "16 pages of 1 MiB are made behind 64 of the caller's."
    yield _measured("mem-003/behind-others", _MADE, title, draw, "sequence", lent=64, runs=[(64, "int8")])
    title = "Pages of 1 MiB are made in a map, before those of the caller and behind them."
    yield _measured("mem-003/map", _MADE, title, draw, "map", lent=32, runs=[(0, "int8"), (80, "int8")], first=16)
    title = "16 of 64 pages of 1 MiB are changed to pages of 2 MiB."
    yield _measured("mem-004/larger", _CHANGED, title, draw, "sequence", lent=64, runs=[(24, "identity")])
    title = "Pages are made and then changed twice, back to their first type."
    runs = [(32, "int8"), (32, "identity"), (32, "int8")]
    yield _measured("mem-004/back", _CHANGED, title, draw, "sequence", lent=32, runs=runs)


def _measured(
    what: str,
    requirements: tuple[Req, ...],
    title: str,
    draw: Draw,
    kind: Literal["sequence", "map"],
    *,
    lent: int,
    runs: Sequence[tuple[int, str]],
    first: int = 0,
) -> Case:
    """Each run updates so many pages from its own on, with its type; the ``lent`` ones begin at ``first``."""
    scene = Scene()
    for session, dims in (("warm_up", _SMALL), ("pages", _LARGE)):
        typed = any(one != "int8" for _, one in runs)
        kinds = ("int8", "identity") if typed else ("int8",)
        paged = Paged(draw, kinds, kinds, dims=dims, kind=kind, typed=typed, gathers=False)
        made, name = _model(paged), draw.name
        scene.load(made, session, called=f"model_{session}")
        scene.bind({name("cache"): _table(paged, session, lent, first)}, session, session=session)
        for number, (page, one) in enumerate(runs):
            tag = f"_{session}_{number}"
            step: Step = (page, number, 1, one) if typed else (page, number, 1)
            scene.run(paged.operands_of(step, tag), session, session=session)
        scene.release(session).unload(session)
    return replace(scene.case(what, requirements, title), measure=Measure(pages="pages"))


def _table(paged: Paged, session: str, lent: int, first: int) -> Table:
    """Pages that nobody fills."""
    size = paged.nbytes("int8")
    payloads = [Storage(f"{session}_{number}", Stock.UINT8, (size,)) for number in range(lent)]
    pages = [
        Page(0, paged.dims, one.name, key=first + number if paged.kind == "map" else None)
        for number, one in enumerate(payloads)
    ]
    return Table(PageTable(f"table_{session}", tuple(pages), paged.kind), tuple(payloads))


def _model(paged: Paged) -> ModelProto:
    """Updates of the page ``page_id`` and those behind it."""
    name = paged.draw.name
    inputs = [paged.container("cache", mutable=True), *paged.operands()]
    nodes, constants, cache = [], [], "cache"
    for number in range(_PER_RUN):
        offset, page_id, updated = (f"{role}_{number}" for role in ("offset", "page_id", "updated"))
        constants.append(initializer(name(offset), Stock.INT64, [], int64(number)))
        nodes.append(node("Add", [name("page_id"), name(offset)], [name(page_id)]))
        cache, page_id, values, position = (name(role) for role in (cache, page_id, "values", "position"))
        kind = name("quantized_type") if paged.typed else ""
        nodes.append(paged_update(cache, page_id, values, position, name(updated), kind))
        cache = updated
    return paged.declare(model(inputs, nodes, [paged.container(cache, root="cache")], initializers=constants))

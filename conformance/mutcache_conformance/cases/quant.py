"""QUANT: layouts, decoding, the error of encoding, NaN and infinities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from onnx import TensorProto as Stock

from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.draw import Draw
from mutcache_conformance.cases.formats import FORMATS, VARIANTS
from mutcache_conformance.cases.paged_steps import accepted
from mutcache_conformance.cases.paged_words import Paged, Step
from mutcache_conformance.cases.scene import Lent, Scene

EVERY: Final = (*FORMATS, *VARIANTS)
#: One page of these is small, and has two groups of 32 elements in a row.
_DIMS: Final = (1, 3, 64)
_ELEMENTS: Final = {"float16": Stock.FLOAT16, "bfloat16": Stock.BFLOAT16, "float": Stock.FLOAT}
#: The smallest normal and subnormal numbers and the largest ones.
_EXTREMES: Final[Mapping[int, tuple[float, float, float]]] = {
    Stock.FLOAT16: (2.0**-14, 2.0**-24, 65504.0),
    Stock.BFLOAT16: (2.0**-126, 2.0**-133, math.ldexp(255, 120)),
    Stock.FLOAT: (2.0**-126, 2.0**-149, math.ldexp(2**24 - 1, 104)),
}


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the module."""
    yield from _layouts(nonce)
    yield from _decoding(nonce)
    yield from _hostile(nonce)
    yield from _canonical(nonce)
    yield from _infinite(nonce)


def _layouts(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_QUANT_001, Req.MC_QUANT_002, Req.MC_QUANT_003)
    for kind in EVERY:
        paged = Paged(Draw(nonce, f"quant layout {kind}"), (kind,), (kind,), dims=_DIMS)
        title = f"Rows of type {kind} lie where its layout says, in a page that is there and in one that is made."
        steps: list[Step] = [(0, 1, 1), (0, 0, 3), (1, 2, 1)]
        yield accepted(f"quant-001/{kind}", requirement, title, paged, paged.table(kind), *steps)


def _decoding(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_QUANT_002, Req.MC_QUANT_001)
    for kind in EVERY:
        paged = Paged(Draw(nonce, f"quant decoding {kind}"), (kind,), dims=_DIMS)
        name = paged.draw.name
        noise = {0: paged.draw.content("noise", Stock.UINT8, (paged.nbytes(kind),))}
        feeds: dict[str, Lent] = {
            name("cache"): paged.table(kind, kind, contents=noise),
            name("page_ids"): paged.number_storage("page_ids", 1, 0, scalar=False),
        }
        title = f"Pages of type {kind} are decoded, of which one holds any bytes at all."
        scene = Scene().load(paged.reader()).run(feeds, "").unload()
        yield scene.case(f"quant-002/{kind}", requirement, title)
    for what, elem in _ELEMENTS.items():
        kinds = tuple(FORMATS)
        paged = Paged(Draw(nonce, f"quant decoding {what}"), kinds, elem=elem, dims=(1, 2, 32))
        noise = {
            number: paged.draw.content(f"noise {kind}", Stock.UINT8, (paged.nbytes(kind),))
            for number, kind in enumerate(kinds)
        }
        name = paged.draw.name
        feeds = {
            name("cache"): paged.table(*kinds, contents=noise),
            name("page_ids"): paged.number_storage("page_ids", *range(len(kinds)), scalar=False),
        }
        title = f"Pages of all types, which hold any bytes at all, are decoded to {what}."
        yield Scene().load(paged.reader()).run(feeds, "").unload().case(f"quant-002/any-{what}", requirement, title)


def _written(
    what: str,
    requirements: tuple[Req, ...],
    title: str,
    paged: Paged,
    *rows: Sequence[float],
) -> Case:
    """A page of just these rows is written at once."""
    kind, name, count = paged.formats[0], paged.draw.name, len(rows)
    paged = replace(paged, dims=(1, count, paged.dims[-1]))
    feeds = paged.step((0, 0, count), tag="_1")
    feeds[name("values")] = paged.values("values_1", count, [number for row in rows for number in row])
    scene = Scene().load(paged.model()).bind({name("cache"): paged.table(kind)}).run(feeds)
    return scene.release().unload().case(what, requirements, title)


def _hostile_rows(paged: Paged) -> list[list[float]]:
    """Rows that encoders get wrong."""
    normal, subnormal, largest = _EXTREMES[paged.elem]
    count, draw = paged.dims[-1], paged.draw
    signs = [1.0 if bit else -1.0 for bit in draw.integers("signs", count, 0, 1)]
    units = draw.integers("units", count, 1, 60)
    ramp = [sign * unit for sign, unit in zip(signs, units, strict=True)]
    huge = [sign * largest for sign in signs]
    outlier = [value * 2.0**-7 for value in ramp]
    outlier[draw.integer("outlier", 0, count - 1)] = min(largest, 2.0**15)
    return [
        *_ties(paged),
        [0.0] * count,
        [math.copysign(0.0, sign) for sign in signs],
        [value * subnormal for value in ramp],
        [value * normal / 8 for value in ramp],
        huge,
        [largest] * count,
        [largest if sign > 0 else value for sign, value in zip(signs, outlier, strict=True)],
        outlier,
        [abs(value) + 1000 for value in ramp],
        [-abs(value) * 2.0**-5 - 3 for value in ramp],
        [1.0] * count,
    ]


def _ties(paged: Paged) -> list[list[float]]:
    """Rows of numbers half-way between codes of 8, 4 and 2 bits, whose scale is 1."""
    count = paged.dims[-1]
    rows = []
    for largest in (127, 7, 1):
        codes = paged.draw.integers(f"ties of {largest}", count, -largest, largest - 1)
        row = [code + 0.5 for code in codes]
        row[::8] = [float(largest)] * len(row[::8])
        rows.append(row)
    return rows


def _hostile(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_QUANT_003, Req.MC_QUANT_002)
    for kind in EVERY:
        paged = Paged(Draw(nonce, f"quant hostile {kind}"), (kind,), dims=_DIMS)
        title = f"Rows of type {kind}: zeros, subnormals, the largest numbers, one large among small, ties, offsets."
        yield _written(f"quant-003/{kind}", requirement, title, paged, *_hostile_rows(paged))
    for kind in FORMATS:
        for what in ("float", "bfloat16"):
            paged = Paged(Draw(nonce, f"quant hostile {kind} {what}"), (kind,), elem=_ELEMENTS[what], dims=(1, 3, 32))
            title = f"The same rows of type {kind}, of {what} elements."
            yield _written(f"quant-003/{kind}-{what}", requirement, title, paged, *_hostile_rows(paged))
    for width in (8, 16, 128):
        kinds = ("int8-interleaved", "uint4-correction") if width == 8 else ("int8-bfloat16-scale", "nvfp4")
        for kind in kinds:
            paged = Paged(Draw(nonce, f"quant width {width} {kind}"), (kind,), dims=(1, 2, width))
            title = f"Rows of {width} elements of type {kind}."
            yield accepted(f"quant-003/width-{width}-{kind}", requirement, title, paged, paged.table(kind), (0, 1, 1))


def _canonical(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_QUANT_004, Req.MC_QUANT_003)
    for kind in FORMATS:
        paged = Paged(Draw(nonce, f"quant canonical {kind}"), (kind,), dims=_DIMS)
        title = f"Rows of type {kind} are encoded byte for byte as by the canonical encoder."
        rows = [paged.numbers(f"row {number}", _DIMS[-1]) for number in range(2)]
        yield _written(f"quant-004/{kind}", requirement, title, paged, *rows, *_ties(paged))


def _infinite(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_QUANT_005, Req.MC_QUANT_002)
    for kind in EVERY:
        paged = Paged(Draw(nonce, f"quant infinite {kind}"), (kind,), dims=_DIMS)
        row = paged.numbers("row", _DIMS[-1])
        places = paged.draw.integers("places", 3, 0, _DIMS[-1] - 1)
        rows = [list(row) for _ in range(5)]
        for number, special in enumerate((math.nan, math.inf, -math.inf)):
            rows[number][places[number]] = special
        rows[3] = [math.nan] * _DIMS[-1]
        title = f"Rows of type {kind} with a NaN, an infinity of either sign, nothing but NaN; and then numbers again."
        yield _written(f"quant-005/{kind}", requirement, title, paged, *rows)
    for kind in ("int8", "fp8", "static-int8"):
        paged = replace(Paged(Draw(nonce, f"quant infinite float {kind}"), (kind,), dims=_DIMS), elem=Stock.FLOAT)
        row = paged.numbers("row", _DIMS[-1])
        row[0], row[-1] = -math.inf, math.nan
        title = f"A row of FLOAT elements with a NaN and an infinity, of type {kind}."
        yield _written(f"quant-005/{kind}-float", requirement, title, paged, row, [abs(one) for one in row])

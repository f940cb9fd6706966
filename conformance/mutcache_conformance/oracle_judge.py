"""Judges what another encoder or decoder made of pages: what must be the same is, and the rest is within its bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mutcache.proto.onnx_ml import QuantizationProto
from mutcache.requirements import Req
from mutcache_conformance.oracle_codec import DATA_TYPES, Codec, Identity, PackedLinear, codec_of, ulp
from mutcache_conformance.oracle_pages import (
    ContainerForm,
    Gathered,
    PageImage,
    cells,
    decoded,
    elements,
    joined,
    numbers,
)
from mutcache_conformance.oracle_update import Array


@dataclass(frozen=True, slots=True)
class Source:
    """What an element that a run encoded was made from: a number, known up to ``slack``."""

    value: float
    slack: Fraction


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be said of bytes or elements.

    Attributes:
        problem: "" if they are right.
        requirement: the one that the problem breaks.
        is_exact: whether they are what the canonical codec makes.
    """

    problem: str = ""
    requirement: Req | None = None
    is_exact: bool = True


def judge_page(page: PageImage, found: bytes, quantizations: Sequence[QuantizationProto]) -> Judgement:
    """Judge the payload of a page after a run: what the run did not encode is unchanged, the rest within its bound."""
    if found == page.payload:
        return Judgement()
    if len(found) != len(page.payload):
        problem = f"the payload has {len(found)} bytes, not {len(page.payload)}"
        return Judgement(problem, Req.MC_QUANT_001, is_exact=False)
    codec = codec_of(quantizations[page.quantized_type])
    sources = _sources(page, quantizations)
    groups = codec.groups(page.dims)
    for group in range(groups):
        places = codec.places(group, groups)
        canonical, data = (joined(payload, places) for payload in (page.payload, found))
        if canonical == data:
            continue
        first = group * codec.size
        made = [sources.get(first + n) for n in range(codec.size)]
        where = f"group {group} (elements from {_index(first, page.dims)} on)"
        known = [source for source in made if source is not None]
        if len(known) < codec.size:
            is_new = page.identity < 0 and page.write is not None and _was_created(page)
            requirement = Req.MC_PAGED_003 if is_new else Req.MC_PAGED_002
            return Judgement(f"{where} was not written, and is {data.hex()}, not {canonical.hex()}", requirement, False)
        judgement = _judge_group(codec, known, canonical, data, where)
        if judgement.problem:
            return judgement
    return Judgement(is_exact=False)


def judge_gathered(expected: Gathered, found: Array) -> Judgement:
    """Judge what a gather returned: within 1 ulp, and where the run encoded the element, within its bound as well."""
    form, axis = expected.form, expected.axis
    if found.shape != expected.values.shape or found.dtype != expected.values.dtype:
        problem = f"it is {found.dtype}{list(found.shape)}, not {expected.values.dtype}{list(expected.values.shape)}"
        return Judgement(problem, Req.MC_QUANT_002, is_exact=False)
    if found.tobytes() == expected.values.tobytes():
        return Judgement()
    start = 0
    for page in expected.pages:
        stop = start + page.dims[axis]
        part = np.take(found, np.arange(start, stop), axis)
        judgement = _judge_decoded(page, decoded(page, form), part, form)
        if judgement.problem:
            return judgement
        start = stop
    return Judgement(is_exact=False)


def _judge_group(codec: Codec, sources: Sequence[Source], canonical: bytes, data: bytes, where: str) -> Judgement:
    """Judge a group that the run encoded, and that is not what the canonical encoder makes."""
    slack = max(source.slack for source in sources)
    if isinstance(codec, Identity) and not slack:
        return Judgement(f"{where} is {data.hex()}, not {canonical.hex()}", Req.MC_QUANT_003, is_exact=False)
    wanted, results = codec.decode(canonical), codec.decode(data)
    values = [source.value for source in sources]
    is_finite = [math.isfinite(value) for value in values]
    if isinstance(codec, PackedLinear) and not all(is_finite):
        is_finite = [False] * codec.size  # one taints all
    bounds = codec.bounds([value if math.isfinite(value) else 0.0 for value in values], slack, results)
    for number, (value, result, exact) in enumerate(zip(values, results, wanted, strict=True)):
        if not is_finite[number]:
            if not _is_same(result, exact):
                problem = f"{where}: {value!r} was encoded, {result!r} is decoded, not {exact!r}"
                return Judgement(problem, Req.MC_QUANT_005, is_exact=False)
        elif bounds is not None and not _is_within(value, result, bounds[number]):
            problem = f"{where}: {value!r} was encoded, {result!r} is decoded; the bound is {float(bounds[number]):.6g}"
            return Judgement(problem, Req.MC_QUANT_003, is_exact=False)
    return Judgement(is_exact=False)


def _judge_decoded(page: PageImage, wanted: Array, found: Array, form: ContainerForm) -> Judgement:
    codec = codec_of(form.quantizations[page.quantized_type])
    sources = _sources(page, form.quantizations)
    size = found.dtype.itemsize
    raw, data = wanted.tobytes(), found.tobytes()
    kind = DATA_TYPES.get(form.elem_type)
    for first in range(0, math.prod(page.dims), codec.size):
        elements = range(first, first + codec.size)
        bounds = _bounds(codec, [sources.get(at) for at in elements])
        for at, bound in zip(elements, bounds, strict=True):
            expected, result = (one[at * size : (at + 1) * size] for one in (raw, data))
            if expected == result:
                continue
            problem = f"element {_index(at, page.dims)} of a page is {result.hex()}, not {expected.hex()}"
            if kind is None or isinstance(codec, Identity):
                return Judgement(problem, Req.MC_QUANT_002, is_exact=False)
            exact, value = (kind.decode(int.from_bytes(one, "little")) for one in (expected, result))
            if _is_same(exact, value):
                continue
            is_finite = math.isfinite(exact) and math.isfinite(value)
            if not is_finite or abs(Fraction(value) - Fraction(exact)) > bound + ulp(exact, form.elem_type):
                problem = f"element {_index(at, page.dims)} of a page is {value!r}, not {exact!r}"
                return Judgement(problem, Req.MC_QUANT_002, is_exact=False)
    return Judgement(is_exact=False)


def _bounds(codec: Codec, sources: Sequence[Source | None]) -> list[Fraction]:
    """How far elements that two encoders made may be from each other; 0 for those that the run did not encode."""
    known = [source for source in sources if source is not None and math.isfinite(source.value)]
    if len(known) < codec.size:
        return [Fraction(0)] * codec.size
    values = [source.value for source in known]
    found = codec.bounds(values, max(source.slack for source in known), values)
    return [Fraction(1 << 130)] * codec.size if found is None else [2 * bound for bound in found]


def _is_same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _is_within(value: float, result: float, bound: Fraction) -> bool:
    return math.isfinite(result) and abs(Fraction(result) - Fraction(value)) <= bound


def _sources(page: PageImage, quantizations: Sequence[QuantizationProto]) -> dict[int, Source]:
    """The source of every element that the run encoded, by its place in row-major order."""
    write = page.write
    if write is None:
        return {}
    before, codec = write.before, codec_of(quantizations[page.quantized_type])
    if before is None:
        sources: dict[int, Source] = {}
    elif before.quantized_type == page.quantized_type:
        sources = _sources(before, quantizations)
    else:
        sources = _decoded_sources(before, quantizations)
    if codec.data_type in DATA_TYPES:
        encoded = numbers(write.values, codec.data_type)
        nothing = Fraction(0)
        for at, value in zip(cells(page.dims, write), encoded, strict=True):
            sources[at] = Source(value, nothing)
    else:
        sources |= dict.fromkeys(cells(page.dims, write), Source(0.0, Fraction(0)))
    return sources


def _decoded_sources(page: PageImage, quantizations: Sequence[QuantizationProto]) -> dict[int, Source]:
    """The sources of elements that are decoded, which may be off by 1 ulp, to be encoded again."""
    codec = codec_of(quantizations[page.quantized_type])
    exact = Fraction(0)
    if codec.data_type not in DATA_TYPES:
        return dict.fromkeys(range(math.prod(page.dims)), Source(0.0, exact))
    encoded = _sources(page, quantizations)
    values = elements(page.payload, codec, page.dims)
    sources: dict[int, Source] = {}
    for first in range(0, len(values), codec.size):
        places = range(first, first + codec.size)
        bounds = _bounds(codec, [encoded.get(at) for at in places])
        for at, bound in zip(places, bounds, strict=True):
            value = values[at]
            is_exact = isinstance(codec, Identity) or not math.isfinite(value)
            sources[at] = Source(value, exact if is_exact else bound + ulp(value, codec.data_type))
    return sources


def _was_created(page: PageImage) -> bool:
    """Whether the run made the page from nothing."""
    write = page.write
    while write is not None and write.before is not None:
        write = write.before.write
    return write is not None


def _index(at: int, dims: tuple[int, ...]) -> list[int]:
    """The place of an element of a page."""
    return [int(number) for number in np.unravel_index(at, dims)]

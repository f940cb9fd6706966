"""Probes of ONNX Runtime GenAI: its caches are its own, so they are asked for through tokens, and watched by memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from mutcache.requirements import Req
from mutcache_conformance.adapters.onnxruntime_genai import KEY, VALUE, configuration, write_decoder
from mutcache_tools.landscape.genai_pages import (
    BLOCK,
    BLOCKS,
    GENERATED,
    PROMPT,
    REQUESTS,
    exhaust,
    write_paged_decoder,
)
from mutcache_tools.landscape.probing import (
    CACHE_BYTES,
    LEAK,
    NO_COPY,
    WORKSPACE,
    Observation,
    mebibytes,
    peak,
    play,
    resident,
)

#: Of the caches whose memory is measured: bytes of a row, and rows. Keys and values are a cache each.
_WIDTH: Final = 4096
_CAPACITY: Final = CACHE_BYTES // (2 * 4 * _WIDTH)


def _model(**how: Any) -> Any:
    import onnxruntime_genai

    folder = tempfile.mkdtemp(dir=".")
    return onnxruntime_genai.Model(str(write_decoder(Path(folder), **how)))


def _generator(model: Any, **search: Any) -> Any:
    import onnxruntime_genai

    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(**search)
    return onnxruntime_genai.Generator(model, parameters)


def _append(generator: Any, *tokens: int) -> str:
    """What GenAI says against it."""
    try:
        generator.append_tokens(np.array([tokens], np.int32))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _rows(generator: Any, name: str = KEY) -> list[int]:
    """The first element of every row of a cache, as GenAI returns it."""
    return [int(one) for one in generator.get_output(name)[0, 0, :, 0]]


def scene_rows() -> dict[str, Any]:
    """Append twice, and look at all rows."""
    generator = _generator(_model(capacity=8), max_length=8)
    _append(generator, 3, 4, 5)
    first = _rows(generator)
    _append(generator, 20)
    return {"first": first, "second": _rows(generator), "values": _rows(generator, VALUE)}


def scene_overflow() -> dict[str, Any]:
    """Append more than there is room for, then what there is room for."""
    generator = _generator(_model(capacity=8), max_length=8)
    _append(generator, 3, 4, 5)
    before = _rows(generator)
    refusal = _append(generator, *range(10, 16))
    after, count = _rows(generator), generator.token_count()
    again = _append(generator, *range(10, 15))
    return {"before": before, "refusal": refusal, "after": after, "tokens": count, "again": again,
            "rows": _rows(generator)}  # fmt: skip


def scene_append_after_generating() -> dict[str, Any]:
    """Append a token right after one was generated."""
    generator = _generator(_model(capacity=8), max_length=8)
    _append(generator, 3, 4, 5)
    generator.generate_next_token()
    refusal = _append(generator, 20)
    return {"sequence": [int(one) for one in generator.get_sequence(0)], "rows": _rows(generator), "refusal": refusal}


def scene_rewind() -> dict[str, Any]:
    """Take tokens back, and append others."""
    generator = _generator(_model(capacity=8), max_length=8)
    _append(generator, 3, 4, 5, 6)
    generator.rewind_to(2)
    rewound = _rows(generator)
    _append(generator, 30)
    return {"rewound": rewound, "rows": _rows(generator), "tokens": generator.token_count()}


def scene_two_generators() -> dict[str, Any]:
    """Two generators of one model take turns."""
    model = _model(capacity=8)
    one, other = _generator(model, max_length=8), _generator(model, max_length=8)
    _append(one, 3, 4)
    _append(other, 40, 41, 42)
    _append(one, 5)
    return {"one": _rows(one), "other": _rows(other)}


def scene_beams() -> dict[str, Any]:
    """Ask for one buffer, and for two beams; the decoder's results grow, so that it runs either way."""
    found = {}
    for beams in (1, 2):
        generator = _generator(_model(capacity=8, grows=True, beams=beams), max_length=8, num_beams=beams)
        refusal = _append(generator, 3, 4, 5)
        found[str(beams)] = refusal or list(generator.get_output(KEY).shape)
    return found


def scene_memory(how: str) -> dict[str, Any]:
    """Create a generator and append one row after the other, with one buffer or with results that grow."""
    shared = how == "shared"
    model = _model(capacity=_CAPACITY, width=_WIDTH, shared=shared, grows=not shared)
    before = resident()
    with peak() as found:
        generator = _generator(model, max_length=_CAPACITY)
        chunk = [3] * (_CAPACITY // 8)
        for _ in range(7):
            _append(generator, *chunk)
    created = found.growth
    with peak() as found:
        for _ in range(50):
            _append(generator, 4)
    return {"cache_bytes": CACHE_BYTES, "filled_growth": created, "steps_growth": found.growth, "before": before}


def scene_drift() -> dict[str, Any]:
    """Fill, rewind and fill again, many times: does the process grow with the runs?"""
    generator = _generator(_model(capacity=64), max_length=64)
    sizes = []
    for turn in range(600):
        _append(generator, 3, 4, 5, 6)
        generator.rewind_to(0 if turn % 2 else 2)
        generator.rewind_to(0)
        sizes.append(resident())
    slope = float(np.polyfit(np.arange(450), np.array(sizes[150:], float), 1)[0])
    return {"bytes_per_run": slope, "runs": len(sizes)}


def scene_elements() -> dict[str, Any]:
    """A decoder whose caches are INT8."""
    generator = _generator(_model(capacity=8, element="int8"), max_length=8)
    refusal = _append(generator, 3, 4, 5)
    keys = generator.get_output(KEY)
    return {"refusal": refusal, "element": str(keys.dtype), "shape": list(keys.shape), "rows": _rows(generator)}


def scene_pool() -> dict[str, Any]:
    """Requests that want more blocks than the engine's pool has."""
    return exhaust(write_paged_decoder(Path(tempfile.mkdtemp(dir=".")), configuration(capacity=64)))


def observations() -> Iterator[Observation]:
    """Play the scenes and say what they show."""
    yield from _contents()
    yield from _limits()
    yield from _identity()


def _contents() -> Iterator[Observation]:
    found = play(__name__, "rows")
    is_right = found["second"] == [4, 5, 6, 21, 0, 0, 0, 0] and found["values"] == [-4, -5, -6, -21, 0, 0, 0, 0]
    yield Observation(
        "rows",
        (Req.MC_DENSE_001, Req.MC_DENSE_002, Req.MC_DENSE_010),
        "pass" if is_right else "fail",
        "Appended tokens 3, 4, 5 and then 20, with past_present_share_buffer and a capacity of 8 rows.",
        f"The keys were {found['first']} and then {found['second']}.",
        "reported",
        _figures(found),
    )
    found = play(__name__, "rewind")
    is_right = found["rewound"] == [4, 5, 6, 7, 0, 0, 0, 0] and found["rows"] == [4, 5, 31, 7, 0, 0, 0, 0]
    yield Observation(
        "rewind",
        (Req.MC_DENSE_001, Req.MC_DENSE_002),
        "pass" if is_right else "fail",
        "Appended four tokens, rewound to two, and appended token 30.",
        f"After the rewind the keys were {found['rewound']}, at the end {found['rows']}.",
        "reported",
        _figures(found),
    )
    found = play(__name__, "two_generators")
    is_right = found["one"][:3] == [4, 5, 6] and found["other"][:3] == [41, 42, 43]
    yield Observation(
        "two-generators",
        (Req.MC_DENSE_002,),
        "pass" if is_right else "fail",
        "Appended to two generators of one model in turns.",
        f"Their keys were {found['one']} and {found['other']}: each generator has caches of its own.",
        "reported",
        _figures(found),
    )
    found = play(__name__, "append_after_generating")
    has_hole = found["rows"] == [4, 5, 6, 0, 21, 0, 0, 0]
    yield Observation(
        "append-after-generating",
        (Req.MC_DENSE_001,),
        "fail" if has_hole else "pass",
        "Appended tokens 3, 4, 5, had one token generated, and appended token 20.",
        f"The sequence was {found['sequence']} and the keys were {found['rows']}"
        + (": the row of the generated token was never written." if has_hole else "."),
        "reported",
        _figures(found),
    )


def _limits() -> Iterator[Observation]:
    found = play(__name__, "overflow")
    is_right = found["refusal"] and found["before"] == found["after"] and not found["again"]
    yield Observation(
        "overflow",
        (Req.MC_DENSE_003, Req.MC_DENSE_011, Req.MC_DENSE_012),
        "pass" if is_right else "fail",
        "Appended three tokens of eight, then six, then five.",
        f"The six: {found['refusal'] or 'accepted'}. The keys were {found['after']} after it. The five: "
        f"{found['again'] or 'accepted'}.",
        "reported",
        _figures(found),
    )
    found = play(__name__, "pool")
    is_blocked = found.get("blocked", 0) > 0 and found["tokens"][-1] == 0
    rows = PROMPT + GENERATED
    yield Observation(
        "pool-exhausted",
        (Req.MC_DENSE_003, Req.MC_PAGED_012),
        "pass" if is_blocked and found["tokens_later"][-1] else "fail",
        f"Asked the engine for {REQUESTS} requests of {rows} tokens, with a pool of {BLOCKS} blocks of {BLOCK} rows.",
        found.get("error")
        or f"They got {found['tokens']} tokens; then the engine answered CAPACITY_BLOCKED {found['blocked']} times, "
        f"without an error. After the first request was closed they got {found['tokens_later']}.",
        "reported",
        _figures(found),
    )

    found = play(__name__, "elements")
    yield Observation(
        "elements",
        (Req.MC_PAGED_006, Req.MC_PAGED_008, Req.MC_PAGED_009),
        "unsupported",
        "Ran a decoder whose model declares INT8 for past and present.",
        found["refusal"]
        or f"It ran; the cache was one tensor of {found['element']} {found['shape']} with the rows {found['rows']}. "
        "The type is that of the model's input, for all rows; a block of the engine's pool has none of its own.",
        "reported",
        _figures(found),
    )


def _identity() -> Iterator[Observation]:
    found = play(__name__, "beams")
    shape = found["2"]
    is_dropped = isinstance(shape, list) and shape[2] < 8
    yield Observation(
        "beams",
        (Req.MC_BIND_010,),
        "fail" if is_dropped else "pass",
        "Set past_present_share_buffer and num_beams to 2, with a decoder whose results may have any length.",
        f"The run succeeded with keys of shape {shape}, not of capacity 8: the buffer was not shared, and no error "
        "said so. With one beam it is shared: the same decoder is refused, as its result is not as long as the buffer."
        if is_dropped and isinstance(found["1"], str)
        else f"With one beam: {found['1']}; with two: {shape}.",
        "reported",
        _figures(found),
    )
    for how, what in (("shared", "past_present_share_buffer"), ("grows", "results that grow, and no shared buffer")):
        found = play(__name__, "memory", how)
        beyond = found["filled_growth"] - CACHE_BYTES
        is_in_place = max(beyond - WORKSPACE, found["steps_growth"]) < NO_COPY
        yield Observation(
            f"memory-{how}",
            (Req.MC_MEM_001, Req.MC_BIND_010),
            "pass" if is_in_place else "fail",
            f"With {what}: created a generator whose caches have {mebibytes(CACHE_BYTES)} when they are full, filled "
            "seven eighths of them in seven calls, and appended 50 tokens one by one.",
            f"The process grew by {mebibytes(found['filled_growth'])} from before the generator to the last of the "
            f"calls, and by {mebibytes(found['steps_growth'])} in the 50 steps. Addresses are not shown.",
            "memory",
            _figures(found),
        )
    found = play(__name__, "drift")
    yield Observation(
        "memory-over-runs",
        (Req.MC_MEM_002,),
        "pass" if found["bytes_per_run"] < LEAK else "fail",
        f"Appended four tokens and took them back, {found['runs']} times.",
        f"The resident memory grew by {found['bytes_per_run']:.0f} bytes a run.",
        "memory",
        _figures(found),
    )


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in ("stderr", "before")}

"""Probes of llama.cpp: its caches are state of a context; what they hold is read from the state that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from mutcache.requirements import Req
from mutcache_conformance.adapters.llama_cpp import TYPES, WIDTH, Context, write_model
from mutcache_tools.landscape.probing import (
    CACHE_BYTES,
    LEAK,
    NO_COPY,
    Observation,
    mebibytes,
    note,
    peak,
    play,
    resident,
)

_CELLS: Final = 256
#: Of the caches whose memory is measured: a row of keys, and one of values, of float16 in each layer.
_LAYERS: Final = 8
_MEASURED: Final = CACHE_BYTES // (2 * 2 * WIDTH * _LAYERS)


def _context(**how: Any) -> Context:
    return Context(write_model(Path("model.gguf")), **{"cells": _CELLS, **how})


def _floats(rows: list[bytes], kind: str = "f32") -> list[int]:
    """The first element of every row."""
    return [round(float(np.frombuffer(row, {"f32": np.float32, "f16": np.float16}[kind])[0])) for row in rows]


def scene_rows() -> dict[str, Any]:
    """Decode twice, and look at all rows."""
    context = _context(types=("f32", "f32"))
    results = [context.decode([3, 4, 5], 0)]
    first = context.rows()
    results.append(context.decode([20], 3))
    second = context.rows()
    return {
        "results": results,
        "first": _floats(first.keys[0][1]),
        "second": _floats(second.keys[0][1]),
        "values": _floats(second.values[0][1]),
        "kept": first.keys[0][1] == second.keys[0][1][:3] and first.values[0][1] == second.values[0][1][:3],
    }


def scene_overflow() -> dict[str, Any]:
    """Fill the cache but for two cells; ask for three, then for two."""
    context = _context()
    filled = context.decode([1] * (_CELLS - 2), 0)
    before = context.state()
    refused = context.decode([2, 3, 4], _CELLS - 2)
    kept = context.state() == before
    return {"filled": filled, "refused": refused, "kept": kept, "again": context.decode([2, 3], _CELLS - 2),
            "capacity": context.capacity}  # fmt: skip


def scene_positions() -> dict[str, Any]:
    """Leave a gap, write where something stands, and write before the beginning."""
    context = _context()
    context.decode([3, 4, 5], 0)
    before = context.state()
    found = {}
    for what, position in (("gap", 9), ("occupied", 1), ("negative", -1)):
        found[what] = {"result": context.decode([7], position), "kept": context.state() == before}
    return found


def scene_negative() -> dict[str, Any]:
    """Write before the beginning, in an empty cache."""
    context = _context()
    return {"result": context.decode([7], -1), "positions": context.rows().positions}


def scene_remove() -> dict[str, Any]:
    """Give two rows up and write others there."""
    context = _context(types=("f32", "f32"))
    context.decode([3, 4, 5, 6], 0)
    removed = context.remove(2, -1)
    result = context.decode([20], 2)
    rows = context.rows()
    return {"removed": removed, "result": result, "positions": rows.positions, "rows": _floats(rows.keys[0][1])}


def scene_sequences() -> dict[str, Any]:
    """Two sequences of one context take turns."""
    context = _context(types=("f32", "f32"), sequences=2, cells=2 * _CELLS)
    results = [context.decode([3, 4], 0), context.decode([20, 21, 22], 0, 1), context.decode([5], 2)]
    return {
        "results": results,
        "one": _floats(context.rows(0).keys[0][1]),
        "other": _floats(context.rows(1).keys[0][1]),
    }


def scene_types(keys: str, values: str) -> dict[str, Any]:
    """A cache with these types: what are the rows of it?"""
    try:
        context = _context(types=(keys, values))
    except ValueError as error:
        return {"refused": str(error)}
    context.decode([3, 4, 5], 0)
    rows = context.rows()
    return {
        "refused": "",
        "types": [sorted({kind for kind, _ in part}) for part in (rows.keys, rows.values)],
        "row_bytes": [sorted({len(row) for _, layer in part for row in layer}) for part in (rows.keys, rows.values)],
    }


def scene_capacity() -> dict[str, Any]:
    """Ask for capacities, and see what is made of them."""
    return {str(cells): _context(cells=cells).capacity for cells in (100, 256, 300)}


def scene_batch() -> dict[str, Any]:
    """Ask for more tokens at once than the context was made for."""
    context = _context(batch=32)
    note({"asked": 33})
    return {"asked": 33, "result": context.decode([1] * 33, 0)}


def scene_memory() -> dict[str, Any]:
    """Make a context, and decode: what does it take, and when?"""
    path = write_model(Path("model.gguf"), layers=_LAYERS)
    Context(path, cells=_CELLS).decode([1], 0)
    with peak() as made:
        context = Context(path, cells=_MEASURED, batch=256)
    with peak() as first:
        context.decode([1] * 256, 0)
    with peak() as steps:
        for step in range(50):
            context.decode([1], 256 + step)
    sizes = []
    for step in range(400):
        context.decode([1], 306 + step)
        sizes.append(resident())
    slope = float(np.polyfit(np.arange(300), np.array(sizes[100:], float), 1)[0])
    return {
        "capacity": context.capacity,
        "cache_bytes": CACHE_BYTES,
        "created_growth": made.growth,
        "first_growth": first.growth,
        "steps_growth": steps.growth,
        "bytes_per_run": slope,
    }


def observations() -> Iterator[Observation]:
    """Play the scenes and say what they show."""
    yield from _contents()
    yield from _refusals()
    yield from _shapes()
    yield from _measured()


def _contents() -> Iterator[Observation]:
    found = play(__name__, "rows")
    is_right = found["second"] == [4, 5, 6, 21] and found["values"] == [-4, -5, -6, -21] and found["kept"]
    yield Observation(
        "rows",
        (Req.MC_DENSE_001, Req.MC_DENSE_002, Req.MC_DENSE_010),
        "pass" if is_right else "fail",
        "Decoded tokens 3, 4, 5 and then 20, in a context with float32 caches.",
        f"The keys were {found['first']} and then {found['second']}; the first three rows, of keys and values, "
        f"{'kept every byte' if found['kept'] else 'changed'}.",
        "reported",
        _figures(found),
    )
    found = play(__name__, "sequences")
    is_right = found["one"] == [4, 5, 6] and found["other"] == [21, 22, 23]
    yield Observation(
        "two-sequences",
        (Req.MC_DENSE_002,),
        "pass" if is_right else "fail",
        "Decoded two sequences of one context in turns.",
        f"Their keys were {found['one']} and {found['other']}.",
        "reported",
        _figures(found),
    )
    found = play(__name__, "remove")
    is_right = found["removed"] and found["rows"] == [4, 5, 21]
    yield Observation(
        "rewind",
        (Req.MC_DENSE_001, Req.MC_DENSE_002),
        "pass" if is_right else "fail",
        "Gave up the rows from position 2 on, and decoded token 20 there.",
        f"The keys were {found['rows']}.",
        "reported",
        _figures(found),
    )


def _refusals() -> Iterator[Observation]:
    found = play(__name__, "overflow")
    is_right = found["refused"] != 0 and found["kept"] and found["again"] == 0
    yield Observation(
        "overflow",
        (Req.MC_DENSE_003, Req.MC_DENSE_011, Req.MC_DENSE_012),
        "pass" if is_right else "fail",
        f"Filled a context of {_CELLS} cells but for two, and decoded three tokens, then two.",
        f"The three: llama_decode returned {found['refused']}, and the state was "
        f"{'the same, byte by byte' if found['kept'] else 'another'}; the two: {found['again']}. The capacity stayed "
        f"{found['capacity']}.",
        "reported",
        _figures(found),
    )
    found = play(__name__, "positions")
    refused = {what: one["result"] != 0 and one["kept"] for what, one in found.items() if isinstance(one, dict)}
    yield Observation(
        "positions",
        (Req.MC_DENSE_001,),
        "unsupported" if refused["gap"] and refused["occupied"] else "pass",
        "After positions 0 to 2 decoded a token at position 9, and one at position 1.",
        "Both were refused, and the state was the same, byte by byte: positions of a sequence only grow, one by one."
        if refused["gap"] and refused["occupied"]
        else f"Refused and intact: {refused}.",
        "reported",
        _figures(found),
    )
    empty = play(__name__, "negative")
    is_right = refused["negative"] and empty["result"] != 0
    yield Observation(
        "negative-position",
        (Req.MC_DENSE_004,),
        "pass" if is_right else "fail",
        "Decoded a token at position -1, in a context with three rows, and in an empty one.",
        f"With three rows llama_decode returned {found['negative']['result']}; in the empty context it returned "
        f"{empty['result']}, and the sequence had {len(empty['positions'])} cells after it.",
        "reported",
        _figures(empty),
    )
    found = play(__name__, "batch")
    yield Observation(
        "more-than-a-batch",
        (Req.MC_DENSE_012,),
        "crash" if "signal" in found else "pass",
        "Decoded 33 tokens at once in a context made for batches of 32.",
        f"The process was ended by {found['signal']}." if "signal" in found else f"It returned {found['result']}.",
        "observed",
        _figures(found),
    )


def _shapes() -> Iterator[Observation]:
    seen, figures = [], {}
    for keys, values in (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"),
                         ("q8_0", "f16")):  # fmt: skip
        found = play(__name__, "types", keys, values)
        figures[f"{keys}, {values}"] = found["refused"] or {"types": found["types"], "row_bytes": found["row_bytes"]}
        expected = [[TYPES[keys][1]], [TYPES[values][1]]]
        if not found["refused"] and found["row_bytes"] == expected:
            seen.append(f"{keys} with {values} ({TYPES[keys][1]} and {TYPES[values][1]} bytes a row)")
    yield Observation(
        "types",
        (Req.MC_PAGED_006, Req.MC_PAGED_008, Req.MC_PAGED_009),
        "unsupported",
        "Made contexts with several types of keys and values, and looked at the rows.",
        f"Worked, with one type for all rows of the keys and one for all rows of the values: {', '.join(seen)}. They "
        "are parameters of the context; a row or a page has none.",
        "reported",
        figures,
    )
    found = play(__name__, "capacity")
    yield Observation(
        "capacity",
        (Req.MC_DENSE_011,),
        "pass",
        "Made contexts of 100, 256 and 300 cells.",
        f"They had {found['100']}, {found['256']} and {found['300']}; no call changes that.",
        "reported",
        _figures(found),
    )


def _measured() -> Iterator[Observation]:
    found = play(__name__, "memory")
    growth = max(found["first_growth"], found["steps_growth"])
    yield Observation(
        "memory-of-steps",
        (Req.MC_MEM_001, Req.MC_BIND_010),
        "pass" if growth < NO_COPY else "fail",
        f"Made a context whose caches have {mebibytes(CACHE_BYTES)}, and decoded 256 tokens, then 50 one by one.",
        f"The process grew by {mebibytes(found['created_growth'])} when the context was made, by "
        f"{mebibytes(found['first_growth'])} in the first call, by {mebibytes(found['steps_growth'])} in the 50 steps.",
        "memory",
        _figures(found),
    )
    yield Observation(
        "memory-over-runs",
        (Req.MC_MEM_002,),
        "pass" if found["bytes_per_run"] < LEAK else "fail",
        "Decoded 400 tokens one by one.",
        f"The resident memory grew by {found['bytes_per_run']:.0f} bytes a run.",
        "memory",
        {"bytes_per_run": found["bytes_per_run"]},
    )


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "stderr"}

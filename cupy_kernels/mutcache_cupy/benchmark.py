"""Rates of the kernels as shares of a device copy's, and a decode step against an empty kernel, in one run.

Values are of 256 MB and more, and buffers take turns, so that none is found in a cache. Whatever is timed is launched
behind the turn before it, so that the device never waits for the host. Figures of different runs, or of different
devices, are not comparable; shares and ratios of one run are.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import Declaration, n_bytes
from mutcache_cupy import transfers
from mutcache_cupy.device import Device
from mutcache_cupy.figures import Prediction, committed, predictions
from mutcache_cupy.samples import cast, packed
from mutcache_cupy.step import Step
from mutcache_cupy.transfers import Transfer

_HALF: Final = TensorProto.FLOAT16
#: Sets of buffers that take turns, and measured turns. At most 2 GB are in use at once.
_SETS, _TURNS = 3, 9
#: Replays of a graph in one turn, and copies before them, which take longer than the host takes to launch them.
_REPLAYS, _COPIES = 20, 2
#: Elements of a page's row, and of the large and the small pages.
_LAST, _LARGE, _SMALL = 1024, 2**27, 2**14
#: Of a decode step: layers, each with keys and values of one token for each sequence.
_LAYERS, _BATCH, _HEADS, _SIZE = 32, 64, 8, 128
#: Groups of 32 codes, of these; and FP8 by a cast.
_STEP_TYPES: Final = ((TensorProto.INT8, 8), (TensorProto.INT4, 4))

_PACKED: Final = {
    "INT8, groups of 32": packed(_HALF, TensorProto.INT8, 8, 32, _HALF),
    "scaled FP8, groups of 32": packed(_HALF, TensorProto.FLOAT8E4M3FN, 8, 32, TensorProto.FLOAT),
    "INT4, groups of 32": packed(_HALF, TensorProto.INT4, 4, 32, _HALF),
    "MXFP4, groups of 32": packed(_HALF, TensorProto.FLOAT4E2M1, 4, 32, TensorProto.FLOAT8E8M0),
    "NVFP4-like, groups of 16": packed(_HALF, TensorProto.FLOAT4E2M1, 4, 16, TensorProto.FLOAT8E4M3FN),
    "INT2, groups of 32": packed(_HALF, TensorProto.INT2, 2, 32, _HALF),
    "UINT2 and correction, groups of 32": packed(_HALF, TensorProto.UINT2, 2, 32, _HALF, correction=_HALF),
}
_PAGES: Final = {"FP8 cast": cast(_HALF)} | _PACKED
#: What a decode step may take, in empty kernels.
_STEP_GOAL: Final = 2.0


@dataclass(frozen=True)
class _Work:
    """Something to time: what to do in each turn, and the bytes that it reads and writes."""

    name: str
    nbytes: int
    turns: tuple[Callable[[], None], ...]
    held: Any = None  # the buffers


def benchmark(device: Device, *, small: bool = False, seconds: float = 100.0) -> Iterator[dict[str, Any]]:
    """Time everything; what no time is left for is missing.

    Args:
        device: the device.
        small: small buffers: the same code, figures of no use.
        seconds: when to stop.

    Yields:
        What is known so far, after each row: ``copy_bytes_per_second``; ``rows`` with ``name``, ``microseconds``,
        ``spread`` (of the turns, as a share of that), ``share`` of the copy's rate or ``ratio`` to the empty kernel,
        ``predicted`` share, ``goal`` and ``is_met``, where there are those; and ``skipped``, the names of what is
        missing.
    """
    start = time.monotonic()
    elements = _SMALL if small else _LARGE
    predicted = {one.name: one for one in predictions(committed())}
    copy = _copy(device, 2 * elements)
    copy_seconds, spread = _time(device, copy)
    rate = copy.nbytes / copy_seconds
    rows: list[dict[str, Any]] = [
        {"name": copy.name, "microseconds": copy_seconds * 1e6, "spread": spread, "share": 1.0}
    ]
    found: dict[str, Any] = {"copy_bytes_per_second": rate, "rows": rows, "skipped": []}
    yield found
    for more in _decode_step(device, copy, small=small):
        rows.append(more)
        yield found
    del copy  # before the next buffers are made
    for name, work in _works(device, elements):
        if time.monotonic() - start > seconds:
            found["skipped"].append(name)
            continue
        made = work()
        took, spread = _time(device, made)
        share = made.nbytes / took / rate
        row = {"name": name, "microseconds": took * 1e6, "spread": spread, "share": share}
        rows.append(row | _compared(share, predicted.get(name)))
        del made
        yield found


def _compared(share: float, prediction: Prediction | None) -> dict[str, Any]:
    """What a row says beside its share."""
    if prediction is None:
        return {}
    goal = prediction.goal
    return {"predicted": prediction.share} | ({} if goal is None else {"goal": goal, "is_met": share >= goal})


def _time(device: Device, work: _Work) -> tuple[float, float]:
    """The median of the turns in seconds, and their spread as a share of it."""
    for turn in work.turns:
        turn()  # compiled, and the buffers touched
    turns = [work.turns[index % len(work.turns)] for index in range(_TURNS + 1)]
    times = [device.elapsed(turn, before) for before, turn in itertools.pairwise(turns)]
    median = statistics.median(times)
    return median, (max(times) - min(times)) / median


def _works(device: Device, elements: int) -> Iterator[tuple[str, Callable[[], _Work]]]:
    yield "dense, fp16", lambda: _dense(device, elements)
    for name, one in _PAGES.items():
        yield name, partial(_encode, device, name, one, elements)
    for name, one in _PAGES.items():
        yield f"decode {name}", partial(_decode, device, f"decode {name}", one, elements)
    for old, new in (("INT8, groups of 32", "INT4, groups of 32"), ("INT4, groups of 32", "FP8 cast")):
        name = f"type change, {old.split(',')[0]} to {new.split(',')[0]}"
        yield name, partial(_reencode, device, name, _PAGES[old], _PAGES[new], elements)


def _copy(device: Device, nbytes: int) -> _Work:
    buffers = [(device.empty(nbytes), device.empty(nbytes)) for _ in range(_SETS)]
    turns = tuple(lambda pair=pair: device.copy(pair[1], pair[0]) for pair in buffers)
    return _Work("device copy", 2 * nbytes, turns, buffers)


def _random(device: Device, elements: int) -> Any:
    """Normal numbers as fp16, repeated: what a cache holds, and no group like its neighbour."""
    part = np.random.default_rng(0).standard_normal(min(elements, 1 << 20)).astype(np.float16)
    values = device.empty(2 * elements)
    some = device.upload(part)
    for start in range(0, 2 * elements, part.nbytes):
        device.copy(values[start : start + part.nbytes], some)
    return values


def _steps(device: Device, name: str, nbytes: int, parts: list[Transfer], held: Any) -> _Work:
    steps = [Step(device, [part]) for part in parts]
    return _Work(name, nbytes, tuple(step.launch for step in steps), (steps, held))


def _dense(device: Device, elements: int) -> _Work:
    rows = elements // _LAST
    held, parts = [], []
    start = device.upload(np.array(0, np.int64))
    for _ in range(_SETS):
        values, cache = _random(device, elements), device.empty(2 * elements)
        held.append((values, cache, start))
        parts.append(
            transfers.dense_update(
                cache=device.address(cache),
                values=device.address(values),
                positions=device.address(start),
                shape=(rows, _LAST),
                length=rows,
                itemsize=2,
            )
        )
    return _steps(device, "dense, fp16", 4 * elements, parts, held)


def _encode(device: Device, name: str, declaration: Declaration, elements: int) -> _Work:
    dims = (elements // _LAST, _LAST)
    held, parts = [], []
    start = device.upload(np.array(0, np.int64))
    for _ in range(_SETS):
        values, payload = _random(device, elements), device.empty(n_bytes(declaration, dims))
        held.append((values, payload, start))
        parts.append(
            transfers.encode_rows(
                declaration,
                dims,
                0,
                payload=device.address(payload),
                values=device.address(values),
                positions=device.address(start),
                length=dims[0],
            )
        )
    return _steps(device, name, 2 * elements + n_bytes(declaration, dims), parts, held)


def _decode(device: Device, name: str, declaration: Declaration, elements: int) -> _Work:
    dims = (elements // _LAST, _LAST)
    encoding = _encode(device, name, declaration, elements)
    for turn in encoding.turns:
        turn()
    parts = [
        transfers.decode_rows(declaration, dims, 0, payload=device.address(payload), values=device.address(values))
        for values, payload, _ in encoding.held[1]
    ]
    return _steps(device, name, encoding.nbytes, parts, encoding.held)


def _reencode(device: Device, name: str, old: Declaration, new: Declaration, elements: int) -> _Work:
    dims = (elements // _LAST, _LAST)
    encoding = _encode(device, name, old, elements)
    for turn in encoding.turns:
        turn()
    held, parts = [encoding.held], []
    for _, payload, _ in encoding.held[1]:
        target = device.empty(n_bytes(new, dims))
        held.append(target)
        parts.append(transfers.reencode(old, new, dims, source=device.address(payload), target=device.address(target)))
    return _steps(device, name, n_bytes(old, dims) + n_bytes(new, dims), parts, held)


def _decode_step(device: Device, copy: _Work, *, small: bool) -> Iterator[dict[str, Any]]:
    """One token of all layers, page types mixed, in one launch; replayed as a graph, beside one of an empty kernel."""
    layers, batch = (2, 2) if small else (_LAYERS, _BATCH)
    dims = (batch, 64, _HEADS * _SIZE)
    types = [packed(_HALF, storage, bits, 32, _HALF, rank=3) for storage, bits in _STEP_TYPES] + [cast(_HALF)]
    start = device.upload(np.array(17, np.int64))
    held, parts = [], []
    for layer in range(2 * layers):  # keys and values
        declaration = types[layer % len(types)]
        values = _random(device, batch * _HEADS * _SIZE)
        payload = device.empty(n_bytes(declaration, dims))
        held.append((values, payload))
        parts.append(
            transfers.encode_rows(
                declaration,
                dims,
                1,
                payload=device.address(payload),
                values=device.address(values),
                positions=device.address(start),
                length=1,
            )
        )
    step, floor = Step(device, parts, "step"), Step(device, parts[:1], "empty")
    floor_time, spread = _replayed(device, floor, copy)
    row = {"microseconds": floor_time * 1e6, "spread": spread, "ratio": 1.0}
    yield {"name": "empty kernel, graph replay"} | row
    took, spread = _replayed(device, step, copy)
    refused = step.refused()
    assert not refused, refused
    ratio = took / floor_time
    row = {"microseconds": took * 1e6, "spread": spread, "ratio": ratio, "goal": _STEP_GOAL}
    yield {"name": f"decode step, {2 * layers} pages, graph replay"} | row | {"is_met": ratio <= _STEP_GOAL}


def _replayed(device: Device, step: Step, copy: _Work) -> tuple[float, float]:
    """Seconds of one replay of a step, of many in a row, and their spread."""
    step.launch()  # its kernel is loaded, which no capture allows
    replay = device.captured(step.launch)

    def replays() -> None:
        for _ in range(_REPLAYS):
            replay()

    def copies() -> None:
        for turn in copy.turns * _COPIES:
            turn()

    replays()
    times = [device.elapsed(replays, copies) / _REPLAYS for _ in range(_TURNS)]
    median = statistics.median(times)
    return median, (max(times) - min(times)) / median

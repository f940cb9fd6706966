"""Rates of the kernels as shares of a device copy's, and a decode step against an empty kernel, in one run.

Buffers are of 256 MB and more and take turns, so that none is found in a cache. Figures of different runs, or of
different devices, are not comparable; shares and ratios of one run are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import Declaration, n_bytes
from mutcache_cupy import transfers
from mutcache_cupy.device import Device
from mutcache_cupy.samples import cast, packed
from mutcache_cupy.step import Step
from mutcache_cupy.transfers import Transfer

_HALF: Final = TensorProto.FLOAT16
#: Sets of buffers that take turns, and measured turns.
_SETS, _TURNS = 3, 9
#: Elements of a page's row, and of the large and the small pages.
_LAST, _LARGE, _SMALL = 1024, 2**27, 2**14
#: Of a decode step: layers, each with keys and values of one token for each sequence.
_LAYERS, _BATCH, _HEADS, _SIZE = 32, 64, 8, 128

_PACKED: Final = (
    ("INT8, groups of 32", packed(_HALF, TensorProto.INT8, 8, 32, _HALF), 0.90),
    ("scaled FP8, groups of 32", packed(_HALF, TensorProto.FLOAT8E4M3FN, 8, 32, TensorProto.FLOAT), None),
    ("INT4, groups of 32", packed(_HALF, TensorProto.INT4, 4, 32, _HALF), 0.80),
    ("MXFP4, groups of 32", packed(_HALF, TensorProto.FLOAT4E2M1, 4, 32, TensorProto.FLOAT8E8M0), 0.80),
    ("NVFP4-like, groups of 16", packed(_HALF, TensorProto.FLOAT4E2M1, 4, 16, TensorProto.FLOAT8E4M3FN), 0.80),
    ("INT2, groups of 32", packed(_HALF, TensorProto.INT2, 2, 32, _HALF), 0.75),
    ("UINT2 and correction, groups of 32", packed(_HALF, TensorProto.UINT2, 2, 32, _HALF, correction=_HALF), 0.75),
)


@dataclass(frozen=True)
class _Work:
    """Something to time: what to do in each turn, and the bytes that it reads and writes."""

    name: str
    nbytes: int
    turns: tuple[Callable[[], None], ...]
    goal: float | None = None
    held: Any = None  # the buffers


def benchmark(device: Device, *, small: bool = False, seconds: float = 100.0) -> dict[str, Any]:
    """Time everything; what no time is left for is missing.

    Args:
        device: the device.
        small: small buffers: the same code, figures of no use.
        seconds: when to stop.

    Returns:
        ``copy_bytes_per_second``, and ``rows`` with ``name``, ``microseconds``, ``share`` of the copy's rate or
        ``ratio`` to the empty kernel, and ``goal`` where the design has one; ``skipped`` names what is missing.
    """
    start = time.monotonic()
    elements = _SMALL if small else _LARGE
    copy = _copy(device, 2 * elements)
    copy_seconds = _median(device, copy)
    rate = copy.nbytes / copy_seconds
    rows: list[dict[str, Any]] = [{"name": copy.name, "microseconds": copy_seconds * 1e6, "share": 1.0}]
    skipped = []
    for name, work in _works(device, elements):
        if time.monotonic() - start > seconds:
            skipped.append(name)
            continue
        made = work()
        took = _median(device, made)
        row = {"name": name, "microseconds": took * 1e6, "share": made.nbytes / took / rate}
        rows.append(row if made.goal is None else row | {"goal": made.goal})
        del made  # before the next buffers are made
    rows += _decode_step(device, small=small)
    return {"copy_bytes_per_second": rate, "rows": rows, "skipped": skipped}


def _median(device: Device, work: _Work) -> float:
    for turn in work.turns:
        turn()  # compiled, and the buffers touched
    times = [device.elapsed(work.turns[index % len(work.turns)]) for index in range(_TURNS)]
    return statistics.median(times)


def _works(device: Device, elements: int) -> Iterator[tuple[str, Callable[[], _Work]]]:
    yield "dense, fp16", lambda: _dense(device, elements)
    yield "FP8 cast", lambda: _encode(device, "FP8 cast", cast(_HALF), elements, 0.90)
    for name, declaration, goal in _PACKED:
        yield name, lambda name=name, one=declaration, goal=goal: _encode(device, name, one, elements, goal)  # type: ignore[misc]  # mypy knows no defaults of lambdas
    for name, declaration, _ in _PACKED:
        yield f"decode {name}", lambda name=name, one=declaration: _decode(device, f"decode {name}", one, elements)  # type: ignore[misc]  # as above
    old, new = _PACKED[0][1], _PACKED[2][1]
    yield "type change INT8 to INT4", lambda: _reencode(device, "type change INT8 to INT4", old, new, elements)


def _copy(device: Device, nbytes: int) -> _Work:
    buffers = [(device.empty(nbytes), device.empty(nbytes)) for _ in range(_SETS)]
    turns = tuple(lambda pair=pair: device.copy(pair[1], pair[0]) for pair in buffers)
    return _Work("device copy", 2 * nbytes, turns, held=buffers)


def _random(device: Device, elements: int) -> Any:
    """Normal numbers as fp16, repeated: what a cache holds, and no group like its neighbour."""
    part = np.random.default_rng(0).standard_normal(min(elements, 1 << 20)).astype(np.float16)
    values = device.empty(2 * elements)
    some = device.upload(part)
    for start in range(0, 2 * elements, part.nbytes):
        device.copy(values[start : start + part.nbytes], some)
    return values


def _steps(device: Device, name: str, nbytes: int, parts: list[Transfer], goal: float | None, held: Any) -> _Work:
    steps = [Step(device, [part]) for part in parts]
    return _Work(name, nbytes, tuple(step.launch for step in steps), goal, (steps, held))


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
    return _steps(device, "dense, fp16", 4 * elements, parts, 0.90, held)


def _encode(device: Device, name: str, declaration: Declaration, elements: int, goal: float | None) -> _Work:
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
    return _steps(device, name, 2 * elements + n_bytes(declaration, dims), parts, goal, held)


def _decode(device: Device, name: str, declaration: Declaration, elements: int) -> _Work:
    dims = (elements // _LAST, _LAST)
    encoding = _encode(device, name, declaration, elements, None)
    for turn in encoding.turns:
        turn()
    parts = [
        transfers.decode_rows(declaration, dims, 0, payload=device.address(payload), values=device.address(values))
        for values, payload, _ in encoding.held[1]
    ]
    return _steps(device, name, encoding.nbytes, parts, None, encoding.held)


def _reencode(device: Device, name: str, old: Declaration, new: Declaration, elements: int) -> _Work:
    dims = (elements // _LAST, _LAST)
    encoding = _encode(device, name, old, elements, None)
    for turn in encoding.turns:
        turn()
    held, parts = [encoding.held], []
    for _, payload, _ in encoding.held[1]:
        target = device.empty(n_bytes(new, dims))
        held.append(target)
        parts.append(transfers.reencode(old, new, dims, source=device.address(payload), target=device.address(target)))
    return _steps(device, name, n_bytes(old, dims) + n_bytes(new, dims), parts, None, held)


def _decode_step(device: Device, *, small: bool) -> list[dict[str, Any]]:
    """One token of all layers, page types mixed, in one launch; replayed as a graph, beside one of an empty kernel."""
    layers, batch = (2, 2) if small else (_LAYERS, _BATCH)
    dims = (batch, 64, _HEADS * _SIZE)
    types = [packed(_HALF, d.storage_type, d.bits, 32, _HALF, rank=3) for _, d, _ in (_PACKED[0], _PACKED[2])]
    types.append(cast(_HALF))
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
    times = {}
    for name, launch in (("empty kernel", floor.launch), ("decode step", step.launch)):
        launch()
        times[name] = _median(device, _Work(name, 0, (device.captured(launch),)))
    refused = step.refused()
    assert not refused, refused
    floor_time = times["empty kernel"]
    return [
        {"name": "empty kernel, graph replay", "microseconds": floor_time * 1e6, "ratio": 1.0},
        {
            "name": f"decode step, {2 * layers} pages, graph replay",
            "microseconds": times["decode step"] * 1e6,
            "ratio": times["decode step"] / floor_time,
            "goal": 2.0,
        },
    ]

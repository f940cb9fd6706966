"""Bytes that kernels write against those of the canonical codec: exhaustive 16-bit patterns, and hostile elements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from mutcache.ops.dense import Attributes, CacheUpdate, Names
from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import Declaration, decode, encode, encode_rows, n_bytes, reencode
from mutcache_cupy import transfers
from mutcache_cupy.device import Array, Device
from mutcache_cupy.records import Status
from mutcache_cupy.samples import DTYPES, hostile, packed, packed_declarations, plain_declarations, same
from mutcache_cupy.step import Step

_BLOCKS: Final = (8, 16, 24, 32, 512)


def check_equality(device: Device, *, small: bool = False) -> dict[str, Any]:
    """Compare every kernel with its counterpart.

    Returns:
        ``checked``: how many comparisons; ``wrong``: the names of those that failed; ``is_right``.
    """
    found: dict[str, Any] = {}
    for found in equality(device, small=small):  # noqa: B007 - the last one is wanted
        pass
    return found


def equality(device: Device, *, small: bool = False) -> Iterator[dict[str, Any]]:
    """The same, told after every kind of comparison, as far as it has come."""
    checked, wrong = 0, list[str]()
    for kind in (
        _dense(device),
        _refusals(device),
        _pages(device, small=small),
        _types(device),
        _patterns(device, small=small),
    ):
        for name, is_right in kind:
            checked += 1
            if not is_right:
                wrong.append(name)
            if checked % 100 == 0:
                yield {"checked": checked, "wrong": wrong, "is_right": not wrong}
    yield {"checked": checked, "wrong": wrong, "is_right": not wrong}


def encoded(
    device: Device, declaration: Declaration, values: Array, rows: int, position: int, kernel: str | None = None
) -> tuple[Array, dict[int, Status], str]:
    """The payload of a page of bytes 0xA5 after an update on the device, what was refused, and the kernel that ran."""
    dims = (rows, *values.shape[1:])
    payload = device.upload(np.full(n_bytes(declaration, dims), 0xA5, np.uint8))
    on_device, start = device.upload(values), device.upload(np.array(position, np.int64))
    transfer = transfers.encode_rows(
        declaration,
        dims,
        0,
        payload=device.address(payload),
        values=device.address(on_device),
        positions=device.address(start),
        length=len(values),
    )
    step = Step(device, [transfer], kernel)
    step.launch()
    return device.download(payload), step.refused(), step.kernel


def _expected(declaration: Declaration, values: Array, rows: int, position: int) -> Array:
    dims = (rows, *values.shape[1:])
    payload = np.full(n_bytes(declaration, dims), 0xA5, np.uint8)
    encode_rows(payload, declaration, dims, 0, position, values)
    return payload


def _pages(device: Device, *, small: bool) -> Iterator[tuple[str, bool]]:
    """Every declaration: rows encoded by its own kernel and by that of steps, and pages of any bytes decoded."""
    rng = np.random.default_rng(0)
    for data in DTYPES:
        declarations = list(plain_declarations(data))
        for block, layout in itertools.product(_BLOCKS[1:3] if small else _BLOCKS, (0, 1)):
            declarations += packed_declarations(data, block, layout)
        for declaration in declarations:
            values = hostile(data, (37, 2 * (declaration.block_size or 24)), rng)
            expected = _expected(declaration, values, 41, 3)
            for kernel in (None, "step"):
                found, refused, name = encoded(device, declaration, values, 41, 3, kernel)
                yield f"{name} {declaration}", not refused and np.array_equal(found, expected)
            yield from _decoded(device, declaration, values.shape, rng)


def _decoded(
    device: Device, declaration: Declaration, dims: Sequence[int], rng: np.random.Generator
) -> Iterator[tuple[str, bool]]:
    bytes_ = rng.integers(0, 256, n_bytes(declaration, dims), dtype=np.uint8)
    expected = decode(bytes_, declaration, dims)
    payload = device.upload(bytes_)
    for kernel in (None, "gather"):
        values = device.upload(np.zeros_like(expected))
        transfer = transfers.decode_rows(
            declaration, dims, 0, payload=device.address(payload), values=device.address(values)
        )
        step = Step(device, [transfer], kernel)
        step.launch()
        refused = step.refused()
        found = device.download(values).view(expected.dtype).reshape(expected.shape)
        yield f"{step.kernel} {declaration}", not refused and same(found, expected)


def _patterns(device: Device, *, small: bool) -> Iterator[tuple[str, bool]]:
    """Every 16-bit pattern through the codecs that have instructions of the device: halves, E4M3, divisions."""
    for data in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        every = np.arange(0, 1 << 16, 61 if small else 1, dtype=np.uint16)
        every = every[: len(every) // 16 * 16].view(DTYPES[data])
        values = np.zeros((len(every) // 2, 16), DTYPES[data])
        values[:, 3], values[:, 12] = every[0::2], every[1::2]
        values[1::2, 5] = 1
        for declaration in (
            *plain_declarations(data),
            *packed_declarations(data, 16, 0),
        ):
            expected = _expected(declaration, values, len(values), 0)
            found, refused, name = encoded(device, declaration, values, len(values), 0)
            yield f"every pattern: {name} {declaration}", not refused and np.array_equal(found, expected)


def _types(device: Device) -> Iterator[tuple[str, bool]]:
    """Pages under other declarations."""
    rng = np.random.default_rng(1)
    for data in DTYPES:
        declarations = [*plain_declarations(data), *packed_declarations(data, 32, 0), *packed_declarations(data, 24, 1)]
        for _ in range(60):
            old, new = (declarations[int(index)] for index in rng.integers(0, len(declarations), 2))
            before = encode(hostile(data, (7, 96), rng), old)
            expected = reencode(before, old, new, (7, 96))
            source, target = device.upload(before), device.empty(len(expected))
            step = Step(
                device,
                [transfers.reencode(old, new, (7, 96), source=device.address(source), target=device.address(target))],
            )
            step.launch()
            refused, found = step.refused(), device.download(target)
            if new.kind == "identity":  # the bits of a NaN are nobody's
                is_right = same(found.view(DTYPES[data]), expected.view(DTYPES[data]))
            else:
                is_right = np.array_equal(found, expected)
            yield f"reencode {old} {new}", not refused and is_right


def _dense(device: Device) -> Iterator[tuple[str, bool]]:
    """Dense updates along every axis, circular ones and those with a position for each row of a batch."""
    rng = np.random.default_rng(2)
    shape = (3, 10, 5, 24)
    for itemsize, axis, is_circular in itertools.product((1, 2, 4, 8), range(4), (False, True)):
        for batch_axis in (None, *(other for other in range(4) if other != axis)):
            dtype = np.dtype(f"u{itemsize}")
            cache = rng.integers(0, 256, np.prod(shape) * itemsize, dtype=np.uint8).view(dtype).reshape(shape)
            length = shape[axis] - 1
            values = cache[tuple(slice(length) if other == axis else slice(None) for other in range(4))][::-1].copy()
            count = () if batch_axis is None else (shape[batch_axis],)
            positions = rng.integers(0, 2**62 if is_circular else 2, count, dtype=np.int64)
            positions = np.asarray(positions, np.int64)
            expected = cache.copy()
            attributes = Attributes(axis, is_circular, batch_axis)
            CacheUpdate(expected, attributes, Names("node", "cache", "values", "position")).write(values, positions)
            memory, on_device, starts = device.upload(cache), device.upload(values), device.upload(positions)
            transfer = transfers.dense_update(
                cache=device.address(memory),
                values=device.address(on_device),
                positions=device.address(starts),
                shape=shape,
                length=length,
                itemsize=itemsize,
                axis=axis,
                is_circular=is_circular,
                batch_axis=batch_axis,
            )
            step = Step(device, [transfer])
            step.launch()
            refused = step.refused()
            found = device.download(memory).view(dtype).reshape(shape)
            yield f"dense_update u{8 * itemsize} {attributes}", not refused and np.array_equal(found, expected)


def _refusals(device: Device) -> Iterator[tuple[str, bool]]:
    """Positions out of range raise their flag, and no byte is written."""
    declaration = packed(TensorProto.FLOAT16, TensorProto.INT8, 8, 16, TensorProto.FLOAT16)
    values = np.ones((4, 32), np.float16)
    for position, expected in {
        -1: Status.NEGATIVE,
        -(2**63): Status.NEGATIVE,
        5: Status.OVERFLOW,
        2**63 - 1: Status.OVERFLOW,
    }.items():
        for kernel in (None, "step"):
            found, refused, name = encoded(device, declaration, values, 8, position, kernel)
            yield f"{name} refuses {position}", refused == {0: expected} and bool((found == 0xA5).all())

"""The dense kernel on the host shim, against numpy: every axis, mode, batch axis and width, in range and out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import Array, host, launch, needs_compiler

from mutcache_cupy import transfers
from mutcache_cupy.records import Status

pytestmark = needs_compiler


def expected_update(
    cache: Array, values: Array, positions: list[int], axis: int, circular: bool, batch: int | None
) -> tuple[Array, Status]:
    """The definition of CacheUpdate, element by element, in Python's integers."""
    capacity, length = cache.shape[axis], values.shape[axis]
    status = Status(0)
    for position in positions:
        if position < 0:
            status |= Status.NEGATIVE
        if (length if circular else position + length) > capacity:
            status |= Status.OVERFLOW
    result = cache.copy()
    if not status:
        for index in np.ndindex(values.shape):
            start = positions[0] if batch is None else positions[index[batch]]
            row = start + index[axis]
            target = (*index[:axis], row % capacity if circular else row, *index[axis + 1 :])
            result[target] = values[index]
    return result, status


@st.composite
def updates(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    circular = draw(st.booleans())
    batch = draw(st.sampled_from([None, *(other for other in range(len(shape)) if other != axis)]))
    length = draw(st.integers(0, shape[axis] + (draw(st.integers(0, 9)) == 0)))
    count = 1 if batch is None else shape[batch]
    usual = st.integers(0, 3 * shape[axis] + 1 if circular else max(shape[axis] - length, 0))
    odd = st.one_of(st.integers(-2, 8), st.sampled_from([-(2**63), 2**63 - 1, 2**32, 2**31 - 1]))
    positions = draw(st.lists(odd if draw(st.integers(0, 4)) == 0 else usual, min_size=count, max_size=count))
    return {
        "shape": shape,
        "axis": axis,
        "circular": circular,
        "batch": batch,
        "length": length,
        "positions": positions,
        "itemsize": draw(st.sampled_from([1, 2, 4, 8, 16])),
        "shift": draw(st.integers(0, 3)),
        "kernel": draw(st.sampled_from([None, "step"])),
    }


@settings(max_examples=300, deadline=None)
@given(updates())
def test_every_update(update: dict[str, Any]) -> None:
    check(**update)


@pytest.mark.parametrize("kernel", [None, "step"])
@pytest.mark.parametrize(("batch", "circular"), [(None, False), (None, True), (0, False), (2, True)])
def test_many_rows_of_vectors(batch: int | None, circular: bool, kernel: str | None) -> None:
    shape = [4, 60, 6, 24]
    positions = [17] if batch is None else [(7 * row) % 31 for row in range(shape[batch])]
    check(shape, 1, circular, batch, 29, positions, 2, 0, kernel)


def check(
    shape: list[int],
    axis: int,
    circular: bool,
    batch: int | None,
    length: int,
    positions: list[int],
    itemsize: int,
    shift: int,
    kernel: str | None,
) -> None:
    """Launch one update; ``shift`` elements stand before the cache, so that it is less aligned."""
    device = host()
    rng = np.random.default_rng(0)
    dtype = np.dtype(np.complex128) if itemsize == 16 else np.dtype(f"u{itemsize}")

    def filled(dims: list[int]) -> Array:
        return np.frombuffer(rng.bytes(int(np.prod(dims)) * itemsize), dtype).reshape(dims)

    cache, values = filled(shape), filled([*shape[:axis], length, *shape[axis + 1 :]])
    raw = f"V{itemsize}"
    expected, status = expected_update(cache.view(raw), values.view(raw), positions, axis, circular, batch)
    before = np.full(shift * itemsize, 0xEE, np.uint8)
    memory = device.upload(np.concatenate([before, cache.reshape(-1).view(np.uint8), before]))
    on_device, starts = device.upload(values), device.upload(np.array(positions, np.int64))
    transfer = transfers.dense_update(
        cache=device.address(memory) + len(before),
        values=device.address(on_device),
        positions=device.address(starts),
        shape=shape,
        length=length,
        itemsize=itemsize,
        axis=axis,
        is_circular=circular,
        batch_axis=batch,
    )
    assert launch(device, transfer, kernel=kernel) == ({0: status} if status else {})
    expected_bytes = np.concatenate([before, np.ascontiguousarray(expected).reshape(-1).view(np.uint8), before])
    np.testing.assert_array_equal(device.download(memory), expected_bytes)

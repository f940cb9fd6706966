"""Encode kernels on the host shim: their bytes are those of the canonical codec, for every declaration."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import BLOCKS, LAYOUTS, Array, host, launch, needs_compiler

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import Declaration, encode, encode_rows, n_bytes
from mutcache_cupy import transfers
from mutcache_cupy.equality import encoded
from mutcache_cupy.records import NO_VECTORS, Status
from mutcache_cupy.samples import DTYPES, cast, hostile, packed, packed_declarations, plain_declarations, static

pytestmark = needs_compiler


def check_rows(declaration: Declaration, values: Array, rows: int, position: int, *, kernel: str | None = None) -> None:
    """Write ``values`` into a page of ``rows`` rows from ``position`` on; no other byte may change."""
    dims = (rows, *values.shape[1:])
    expected = np.full(n_bytes(declaration, dims), 0xA5, np.uint8)
    encode_rows(expected, declaration, dims, 0, position, values)
    payload, refused, kernel_run = encoded(host(), declaration, values, rows, position, kernel)
    assert refused == {}
    np.testing.assert_array_equal(payload, expected, err_msg=f"{declaration} {kernel_run}")


@pytest.mark.parametrize("data", DTYPES)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups(data: int, block: int, layout: int) -> None:
    rng = np.random.default_rng([data, block, layout])
    for declaration in packed_declarations(data, block, layout):
        values = hostile(data, (7, 2 * block), rng)
        check_rows(declaration, values, 11, 3)
        check_rows(declaration, values[:3], 11, 0, kernel="step")


@pytest.mark.parametrize("data", DTYPES)
@pytest.mark.parametrize("last", [8, 12, 64])
def test_elements_without_groups(data: int, last: int) -> None:
    rng = np.random.default_rng([data, last])
    for declaration in plain_declarations(data):
        values = hostile(data, (7, last), rng)
        check_rows(declaration, values, 11, 4)
        check_rows(declaration, values[:5], 11, 1, kernel="step")


@pytest.mark.parametrize("data", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_every_16_bit_pattern(data: int) -> None:
    """Each bit pattern alone in its group, beside a 1 that leaves it room, and cast."""
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[data])
    values = np.zeros((1 << 14, 32), DTYPES[data])
    values[:, 0::8] = every.reshape(-1, 4)
    values[1::2, 5] = 1
    check_rows(cast(data), values, 1 << 14, 0)
    check_rows(static(data, TensorProto.INT8, 8, 0.5, 0), values, 1 << 14, 0)
    for declaration in (
        packed(data, TensorProto.INT8, 8, 8, TensorProto.FLOAT16),
        packed(data, TensorProto.FLOAT4E2M1, 4, 8, TensorProto.FLOAT8E4M3FN),
        packed(data, TensorProto.FLOAT4E2M1, 4, 8, TensorProto.FLOAT8E8M0),
        packed(data, TensorProto.UINT2, 2, 8, TensorProto.FLOAT, correction=TensorProto.BFLOAT16),
    ):
        check_rows(declaration, values, 1 << 14, 0)


@pytest.mark.parametrize("scale", [TensorProto.FLOAT, TensorProto.FLOAT8E8M0])
@pytest.mark.parametrize(("storage", "bits"), [(TensorProto.FLOAT8E4M3FN, 8), (TensorProto.FLOAT4E2M1, 4)])
def test_ties_of_float_codes(storage: int, bits: int, scale: int) -> None:
    """With a scale of 1 every quotient is the element itself: midpoints of codes, and their neighbours."""
    top = 448.0 if bits == 8 else 6.0
    steps = np.arange(0, 32, dtype=np.float32)
    midpoints = np.concatenate([steps * 2.0**power for power in range(-14, 6)]).astype(np.float32)
    above, below = (np.nextafter(midpoints, np.float32(bound)) for bound in (np.inf, 0))
    near = np.concatenate([midpoints, above, below])
    near = np.concatenate([near, -near])
    near = near[np.abs(near) <= top]
    groups = np.full((len(near), 8), np.float32(top), np.float32)
    groups[:, 1] = near
    check_rows(packed(TensorProto.FLOAT, storage, bits, 8, scale), groups, len(near), 0)


def test_scales_at_the_ends_of_their_types() -> None:
    """Subnormal scales, scales without a finite reciprocal, and scales that saturate."""
    magnitudes = np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32)
    values = np.zeros((len(magnitudes), 16), np.float32)
    values[:, 3], values[:, 8], values[:, 12] = magnitudes, -magnitudes * np.float32(0.7), magnitudes * np.float32(0.3)
    values[:, 15] = np.float32(3.4e38) * (np.arange(len(magnitudes)) % 7 == 0)
    for declaration in packed_declarations(TensorProto.FLOAT, 16, 0):
        check_rows(declaration, values, len(values), 0)


def test_values_that_are_not_aligned_to_vectors() -> None:
    device = host()
    rng = np.random.default_rng(5)
    declaration = packed(TensorProto.FLOAT16, TensorProto.INT4, 4, 32, TensorProto.FLOAT16)
    values = hostile(TensorProto.FLOAT16, (4, 64), rng)
    expected = encode(values, declaration)
    shifted = device.upload(np.concatenate([np.zeros(2, np.uint8), values.reshape(-1).view(np.uint8)]))
    payload, start = device.empty(len(expected)), device.upload(np.array(0, np.int64))
    transfer = transfers.encode_rows(
        declaration,
        values.shape,
        0,
        payload=device.address(payload),
        values=device.address(shifted) + 2,
        positions=device.address(start),
        length=4,
    )
    assert transfer.page is not None
    assert transfer.page["lanes_log2"] == NO_VECTORS
    assert launch(device, transfer) == {}
    np.testing.assert_array_equal(device.download(payload), expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_along_any_axis(axis: int) -> None:
    device = host()
    rng = np.random.default_rng(axis)
    dims = (3, 4, 5, 32)
    shape = [*dims[:axis], 2, *dims[axis + 1 :]]
    for declaration in (
        packed(TensorProto.FLOAT, TensorProto.INT2, 2, 16, TensorProto.FLOAT16, layout=1, rank=4),
        cast(TensorProto.FLOAT),
    ):
        values = hostile(TensorProto.FLOAT, shape, rng)
        expected = np.zeros(n_bytes(declaration, dims), np.uint8)
        encode_rows(expected, declaration, dims, axis, 1, values)
        payload, on_device = device.upload(np.zeros_like(expected)), device.upload(values)
        start = device.upload(np.array(1, np.int64))
        transfer = transfers.encode_rows(
            declaration,
            dims,
            axis,
            payload=device.address(payload),
            values=device.address(on_device),
            positions=device.address(start),
            length=2,
        )
        assert launch(device, transfer) == {}
        np.testing.assert_array_equal(device.download(payload), expected)


@pytest.mark.parametrize(
    ("position", "status"),
    [(-1, Status.NEGATIVE), (-(2**63), Status.NEGATIVE), (6, Status.OVERFLOW), (2**63 - 1, Status.OVERFLOW)],
)
@pytest.mark.parametrize("block", [16, 24])
def test_mc_paged_005_rows_out_of_range_write_nothing(position: int, status: Status, block: int) -> None:
    device = host()
    declaration = packed(TensorProto.FLOAT16, TensorProto.INT8, 8, block, TensorProto.FLOAT16)
    values = hostile(TensorProto.FLOAT16, (3, 2 * block), np.random.default_rng(0))
    payload = device.upload(np.full(n_bytes(declaration, (8, 2 * block)), 7, np.uint8))
    on_device, start = device.upload(values), device.upload(np.array(position, np.int64))
    transfer = transfers.encode_rows(
        declaration,
        (8, 2 * block),
        0,
        payload=device.address(payload),
        values=device.address(on_device),
        positions=device.address(start),
        length=3,
    )
    assert launch(device, transfer) == {0: status}
    assert (device.download(payload) == 7).all()

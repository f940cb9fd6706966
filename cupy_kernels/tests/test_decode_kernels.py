"""Decode, gather and re-encode kernels on the host shim, against the canonical codec."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import BLOCKS, LAYOUTS, host, launch, needs_compiler

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import Declaration, decode, decode_rows, encode, n_bytes, reencode
from mutcache_cupy import transfers
from mutcache_cupy.samples import DTYPES, hostile, packed, packed_declarations, plain_declarations, same

pytestmark = needs_compiler


def check_page(declaration: Declaration, last: int, rng: np.random.Generator, kernel: str | None) -> None:
    """Decode a page of random bytes: NaN codes and scales, and what no encoder writes."""
    device = host()
    dims = (5, last)
    bytes_ = rng.integers(0, 256, n_bytes(declaration, dims), dtype=np.uint8)
    expected = decode(bytes_, declaration, dims)
    payload, values = device.upload(bytes_), device.upload(np.zeros_like(expected))
    transfer = transfers.decode_rows(
        declaration, dims, 0, payload=device.address(payload), values=device.address(values)
    )
    assert launch(device, transfer, kernel=kernel) == {}
    found = device.download(values).view(expected.dtype).reshape(dims)
    assert same(found, expected), f"{declaration} {transfer.kernel}"


@pytest.mark.parametrize("data", DTYPES)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups(data: int, block: int, layout: int) -> None:
    rng = np.random.default_rng([data, block, layout])
    for declaration in packed_declarations(data, block, layout):
        check_page(declaration, 2 * block, rng, None)
        check_page(declaration, 2 * block, rng, "gather")


@pytest.mark.parametrize("data", DTYPES)
@pytest.mark.parametrize("last", [8, 12, 64])
def test_elements_without_groups(data: int, last: int) -> None:
    rng = np.random.default_rng([data, last])
    for declaration in plain_declarations(data):
        check_page(declaration, last, rng, None)
        check_page(declaration, last, rng, "gather")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_of_pages_of_different_types(axis: int) -> None:
    """Pages side by side along an axis, as PagedCacheGather concatenates them."""
    device = host()
    rng = np.random.default_rng(axis)
    data, dims = TensorProto.FLOAT16, (2, 3, 4, 48)
    declarations = [*plain_declarations(data), *packed_declarations(data, 24, 1, rank=4)][:14]
    pages = [rng.integers(0, 256, n_bytes(declaration, dims), dtype=np.uint8) for declaration in declarations]
    expected = np.concatenate([decode(page, d, dims) for page, d in zip(pages, declarations, strict=True)], axis)
    out = device.upload(np.zeros_like(expected))
    step = int(np.prod(dims[axis:])) * expected.itemsize
    payloads = [device.upload(page) for page in pages]
    parts = [
        transfers.decode_rows(
            declaration,
            dims,
            axis,
            payload=device.address(payload),
            values=device.address(out) + index * step,
            values_rows=len(pages) * dims[axis],
        )
        for index, (payload, declaration) in enumerate(zip(payloads, declarations, strict=True))
    ]
    assert launch(device, *parts, kernel="gather") == {}
    assert same(device.download(out).view(expected.dtype).reshape(expected.shape), expected)


def test_some_rows_of_a_page() -> None:
    device = host()
    rng = np.random.default_rng(1)
    declaration = packed(TensorProto.FLOAT, TensorProto.UINT4, 4, 16, TensorProto.FLOAT16, zero_point=TensorProto.UINT8)
    bytes_ = rng.integers(0, 256, n_bytes(declaration, (6, 32)), dtype=np.uint8)
    expected = decode_rows(bytes_, declaration, (6, 32), 0, 2, 5)
    payload, values, start = device.upload(bytes_), device.upload(np.zeros_like(expected)), device.upload(np.array(2))
    transfer = transfers.decode_rows(
        declaration,
        (6, 32),
        0,
        payload=device.address(payload),
        values=device.address(values),
        length=3,
        positions=device.address(start),
    )
    assert launch(device, transfer) == {}
    assert same(device.download(values).view(np.float32).reshape(3, 32), expected)


@pytest.mark.parametrize("data", DTYPES)
def test_mc_paged_008_reencoding_equals_decode_then_encode(data: int) -> None:
    device = host()
    rng = np.random.default_rng(data)
    declarations = [*plain_declarations(data)]
    for block in (4, 8, 24, 32):
        declarations += [*packed_declarations(data, block, int(rng.integers(2)))]
    for turn in range(300):
        old, new = (declarations[int(index)] for index in rng.integers(0, len(declarations), 2))
        dims = (int(rng.integers(1, 5)), 96)
        # Bytes that an encoder wrote, and any bytes.
        before = encode(hostile(data, dims, rng), old)
        if turn % 2:
            before = rng.integers(0, 256, len(before), dtype=np.uint8)
        expected = reencode(before, old, new, dims)
        source, target = device.upload(before), device.empty(len(expected))
        transfer = transfers.reencode(old, new, dims, source=device.address(source), target=device.address(target))
        assert launch(device, transfer) == {}
        found = device.download(target)
        if new.kind == "identity":  # the bits of a NaN are nobody's
            assert same(found.view(DTYPES[data]), expected.view(DTYPES[data]))
        else:
            np.testing.assert_array_equal(found, expected, err_msg=f"{old} {new}")

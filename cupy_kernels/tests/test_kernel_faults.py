"""What a device refuses, and the host shim with it: unaligned accesses, those beyond memory, and those that race.

Kernels that do it are written here; that none of the package does, at any alignment and in any order, is shown below.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from kernel_cases import Array, host, needs_compiler

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import Declaration, decode, encode_rows, n_bytes, reencode
from mutcache_cupy import transfers
from mutcache_cupy.equality import check_equality
from mutcache_cupy.host import HostDevice, KernelFault, build
from mutcache_cupy.samples import DTYPES, cast, hostile, identity, packed, packed_declarations, plain_declarations, same
from mutcache_cupy.step import Step
from mutcache_cupy.transfers import Transfer

pytestmark = needs_compiler

#: Kernels that get the address of 256 bytes; each does one thing wrong, or nothing.
_SOURCE: Final = """
#include "memory.cuh"
#define KERNEL(name) \\
    extern "C" __global__ void mutcache_##name([[maybe_unused]] u8* bytes, [[maybe_unused]] i32* status)
#define MINE bytes[blockIdx.x * blockDim.x + threadIdx.x]
KERNEL(right) {
    const u32 neighbour = __shfl_xor_sync(0xFFFFFFFFu, threadIdx.x, 1u);
    const int is_first = __syncthreads_or(neighbour == 0);
    MINE = (u8)(neighbour + (u32)is_first);
    atomicOr(status, is_first);
}
KERNEL(load_16) { bytes[128] = (u8)load<uint4>(bytes + 8).w; }
KERNEL(load_8) { bytes[128] = (u8)load<u64>(bytes + 4); }
KERNEL(load_4) { bytes[128] = (u8)load<u32>(bytes + 2); }
KERNEL(load_2) { bytes[128] = (u8)load<u16>(bytes + 1); }
KERNEL(store_16) { store<uint4>(bytes + 4, make_uint4(0, 0, 0, 0)); }
KERNEL(store_2) { store<u16>(bytes + 1, 0); }
KERNEL(add_4) { atomicOr((i32*)(bytes + 2), 1); }
KERNEL(read_behind) { MINE = bytes[256]; }
KERNEL(read_before) { MINE = bytes[-1]; }
KERNEL(read_across) { MINE = (u8)load<uint4>(bytes + 256 - 16 + 16 * (threadIdx.x == 31)).x; }
KERNEL(write_behind) { bytes[256] = 0; }
KERNEL(read_nothing) { MINE = *at_address<const u8>(0); }
KERNEL(add_behind) { atomicOr((i32*)(bytes + 256), 1); }
KERNEL(two_write) { bytes[threadIdx.x / 2] = 1; }
KERNEL(blocks_write) { bytes[threadIdx.x] = 1; }
KERNEL(read_and_write) { bytes[threadIdx.x] = bytes[threadIdx.x ^ 1]; }
KERNEL(half_a_byte) { bytes[threadIdx.x / 2] = (u8)(bytes[threadIdx.x / 2] | 1u << (threadIdx.x % 2 * 4)); }
KERNEL(half_a_warp) {
    if (threadIdx.x < 16) MINE = (u8)__shfl_xor_sync(0xFFFFFFFFu, threadIdx.x, 1u);
}
KERNEL(half_a_block) {
    if (threadIdx.x < 32) MINE = (u8)__syncthreads_or(1);
}
KERNEL(shift) { MINE = (u8)(1 << (threadIdx.x + 31)); }
KERNEL(divide) { MINE = (u8)(1 / (i32)threadIdx.x); }
KERNEL(overflow) {
    const i32 sum = (i32)threadIdx.x + 0x7FFFFFFF;
    MINE = (u8)sum;
}
KERNEL(index) {
    u32 words[2] = {threadIdx.x, 1};
    MINE = (u8)words[threadIdx.x + 1];
}
"""
_UNALIGNED: Final = "is not aligned to what is accessed"
_OUTSIDE: Final = "outside of all memory that was allocated"
_FAULTS: Final = {
    "load_16": _UNALIGNED,
    "load_8": _UNALIGNED,
    "load_4": _UNALIGNED,
    "load_2": _UNALIGNED,
    "store_16": _UNALIGNED,
    "store_2": _UNALIGNED,
    "add_4": "an atomic operation at .* not a multiple of 4",
    "read_behind": f"reads 1 bytes at .*, {_OUTSIDE}",
    "read_before": f"reads 1 bytes at .*, {_OUTSIDE}",
    "read_across": f"reads .* bytes at .*, {_OUTSIDE}",
    "write_behind": f"writes 1 bytes at .*, {_OUTSIDE}",
    "read_nothing": f"reads 1 bytes at 0, {_OUTSIDE}",
    "add_behind": f"writes 4 bytes at .*, {_OUTSIDE}",
    "two_write": "writes the byte at .*, which another thread writes",
    "blocks_write": "writes the byte at .*, which another thread writes",
    "read_and_write": "the byte at .*, which another thread (reads|writes)",
    "half_a_byte": "the byte at .*, which another thread (reads|writes)",
    "half_a_warp": "threads wait for others that do not come",
    "half_a_block": "threads wait for others that do not come",
    "shift": "a shift by more than the width",
    "divide": "a division by zero",
    "overflow": "a sum overflows",
    "index": "an index beyond its array",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.cu").write_text(_SOURCE, encoding="utf-8")
    build([folder / "faults.cu"], folder / "faults.so")
    return folder / "faults.so"


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("kernel", ["right", *_FAULTS])
def test_faults_end_a_launch(library: Path, kernel: str, order: int) -> None:
    device = HostDevice(order=order, library=library)
    bytes_, status = device.upload(np.zeros(256, np.uint8)), device.upload(np.zeros(1, np.int32))
    if kernel == "right":
        device.launch(kernel, (2, 1), bytes_, status)
        expected = [(lane ^ 1) + 1 for lane in range(64)] * 2 + [0] * 128
        assert device.download(bytes_).tolist() == expected
        return
    with pytest.raises(KernelFault, match=f"^{kernel}: .*block .*{_FAULTS[kernel]}"):
        device.launch(kernel, (2, 1), bytes_, status)


def test_memory_that_is_gone_cannot_be_used(library: Path) -> None:
    device = HostDevice(library=library)
    held, status = device.upload(np.zeros(256, np.uint8)), device.upload(np.zeros(1, np.int32))
    part = held[16:]
    del held
    device.launch("right", (3, 1), part, status)  # a part of it keeps it alive
    address = device.address(part)
    del part
    gone = device.view(status, address - device.address(status), np.dtype(np.uint8), (256,))
    with pytest.raises(KernelFault, match=_OUTSIDE):
        device.launch("blocks_write", (1, 1), gone, status)
    with pytest.raises(ValueError, match="there is no kernel 'wrong'"):
        device.launch("wrong", (1, 1), status, status)


class Placed:
    """Bytes on the device that start ``offset`` bytes behind a multiple of 256; nothing is behind them."""

    def __init__(self, bytes_: Array, offset: int) -> None:
        self._offset = offset
        self._all = host().upload(np.concatenate([np.full(offset, 0xEE, np.uint8), bytes_]))
        self.address = host().address(self._all) + offset

    def get(self) -> Array:
        """The bytes; those before them are as they were."""
        found = host().download(self._all)
        assert (found[: self._offset] == 0xEE).all()
        return found[self._offset :]


def bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def run(transfer: Transfer, kernel: str | None = None, *, is_real: bool = True) -> None:
    """Make one transfer; one that is not real names more memory than there is."""
    step = Step(host(), [transfer if is_real else replace(transfer, written=(0, 0), read=(0, 0))], kernel)
    step.launch()
    assert step.refused() == {}


def declarations(data: int) -> list[tuple[Declaration, int]]:
    """Declarations, and sizes of the last axis of their pages."""
    found = [(one, last) for one in plain_declarations(data) for last in (8, 20, 64)]
    for block, layout in itertools.product((4, 8, 16, 24, 32), (0, 1)):
        found += [(one, 3 * block if block % 8 == 0 else 6 * block) for one in packed_declarations(data, block, layout)]
    return found


@pytest.mark.parametrize("data", DTYPES)
def test_pages_and_values_at_every_address(data: int) -> None:
    """Payloads, values and decoded values at odd addresses too, nothing behind them; by both kernels."""
    rng = np.random.default_rng(data)
    for declaration, last in declarations(data):
        payload_at, values_at = (int(rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 16, 17])) for _ in range(2))
        dims = (7, last)
        values = hostile(data, (5, last), rng)
        expected = np.full(n_bytes(declaration, dims), 0xA5, np.uint8)
        encode_rows(expected, declaration, dims, 0, 1, values)
        decoded = decode(expected, declaration, dims)
        for kernel in (None, "step"):
            page = Placed(np.full(len(expected), 0xA5, np.uint8), payload_at)
            source, start = Placed(bytes_of(values), values_at), Placed(bytes_of(np.array(1)), 0)
            run(
                transfers.encode_rows(
                    declaration,
                    dims,
                    0,
                    payload=page.address,
                    values=source.address,
                    positions=start.address,
                    length=5,
                ),
                kernel,
            )
            np.testing.assert_array_equal(page.get(), expected, err_msg=str(declaration))
            out = Placed(np.zeros(decoded.nbytes, np.uint8), values_at)
            run(
                transfers.decode_rows(declaration, dims, 0, payload=page.address, values=out.address),
                kernel and "gather",
            )
            assert same(out.get().view(decoded.dtype).reshape(dims), decoded), declaration


@pytest.mark.parametrize("data", DTYPES)
def test_reencoding_at_every_address(data: int) -> None:
    rng = np.random.default_rng(data)
    every = [one for one, last in declarations(data) if last == 96 or not one.block_size]
    for turn in range(300):
        old, new = (every[int(index)] for index in rng.integers(0, len(every), 2))
        if turn % 4 < 2:  # from or to elements as they are
            old, new = (identity(data), new) if turn % 2 else (old, identity(data))
        dims = (int(rng.integers(1, 4)), 96)
        before = rng.integers(0, 256, n_bytes(old, dims), dtype=np.uint8)
        expected = reencode(before, old, new, dims)
        source, target = (
            Placed(bytes_, int(rng.choice([0, 1, 2, 4, 8, 16]))) for bytes_ in (before, np.zeros_like(expected))
        )
        run(transfers.reencode(old, new, dims, source=source.address, target=target.address))
        if new.kind == "identity":
            assert same(target.get().view(DTYPES[data]), expected.view(DTYPES[data]))
        else:
            np.testing.assert_array_equal(target.get(), expected, err_msg=f"{old} {new}")


@pytest.mark.parametrize("kernel", [None, "step"])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_dense_caches_and_values_at_every_address(itemsize: int, kernel: str | None) -> None:
    rng = np.random.default_rng(itemsize)
    for cache_at, values_at, inner in itertools.product((0, 1, 2, 4, 8, 16, 32), (0, 2, 16, 63), (1, 3, 4, 16)):
        shape = (2, 5, inner)
        cache = rng.integers(0, 256, (*shape, itemsize), dtype=np.uint8)
        values = rng.integers(0, 256, (2, 3, inner, itemsize), dtype=np.uint8)
        expected = cache.copy()
        expected[:, 1:4] = values
        memory, source = Placed(bytes_of(cache), cache_at), Placed(bytes_of(values), values_at)
        start = Placed(bytes_of(np.array(1)), 0)
        run(
            transfers.dense_update(
                cache=memory.address,
                values=source.address,
                positions=start.address,
                shape=shape,
                length=3,
                itemsize=itemsize,
                axis=1,
            ),
            kernel,
        )
        np.testing.assert_array_equal(memory.get(), bytes_of(expected))


@pytest.mark.parametrize(("block", "blocks", "order"), [(32, 1, 1), (96, 7, 2), (256, 3, 3)])
def test_results_do_not_depend_on_the_order_or_number_of_threads(block: int, blocks: int, order: int) -> None:
    """Whatever turns threads take, and however many there are: no byte has two writers, and bytes are right."""
    assert check_equality(HostDevice(block, blocks, order), small=True)["wrong"] == []


@pytest.mark.parametrize("is_circular", [False, True])
@pytest.mark.parametrize("rows", [2**33, 2**40])
def test_rows_of_a_cache_beyond_4_gb(rows: int, is_circular: bool) -> None:
    """Only the rows that are written have memory; those before them, and with them the cache's address, do not."""
    position, values = rows - 5, np.arange(3 * 48, dtype=np.uint8)
    memory, source, start = (
        Placed(bytes_of(array), 0) for array in (np.zeros_like(values), values, np.array(position))
    )
    run(
        transfers.dense_update(
            cache=memory.address - position * 48,
            values=source.address,
            positions=start.address,
            shape=(rows, 48),
            length=3,
            itemsize=1,
            axis=0,
            is_circular=is_circular,
        ),
        is_real=False,
    )
    np.testing.assert_array_equal(memory.get(), values)


@pytest.mark.parametrize("kernel", [None, "step"])
def test_rows_of_a_page_beyond_4_gb(kernel: str | None) -> None:
    rng = np.random.default_rng(0)
    rows = 2**27
    interleaved = packed(TensorProto.FLOAT16, TensorProto.INT8, 8, 32, TensorProto.FLOAT, layout=1)
    for declaration in (cast(TensorProto.FLOAT16), interleaved):
        values = hostile(TensorProto.FLOAT16, (3, 96), rng)
        expected = np.zeros(n_bytes(declaration, (3, 96)), np.uint8)
        encode_rows(expected, declaration, (3, 96), 0, 0, values)
        decoded = decode(expected, declaration, (3, 96))
        before = (rows - 3) * (len(expected) // 3)
        memory, source, start, out = (
            Placed(bytes_of(array), 0)
            for array in (np.zeros_like(expected), values, np.array(rows - 3), np.zeros_like(decoded))
        )
        payload = memory.address - before
        run(
            transfers.encode_rows(
                declaration,
                (rows, 96),
                0,
                payload=payload,
                values=source.address,
                positions=start.address,
                length=3,
            ),
            kernel,
            is_real=False,
        )
        np.testing.assert_array_equal(memory.get(), expected)
        run(
            transfers.decode_rows(
                declaration,
                (rows, 96),
                0,
                payload=payload,
                values=out.address,
                length=3,
                positions=start.address,
            ),
            kernel and "gather",
            is_real=False,
        )
        assert same(out.get().view(np.float16).reshape(3, 96), decoded)


def test_pages_that_have_no_vectors_are_not_told_to_have() -> None:
    """A table of pages on the device is made by callers; a page that its kernels cannot take is refused there."""

    def record(declaration: Declaration, payload: int) -> Any:
        return transfers.page_record(declaration, (4, 96), payload, is_vector=True)

    half, data = TensorProto.FLOAT16, TensorProto.FLOAT16
    for declaration, payload in ((packed(data, TensorProto.INT8, 8, 24, half), 0), (identity(data), 8)):
        with pytest.raises(ValueError, match="no vectors"):
            record(declaration, payload)
    assert record(identity(data), 16)["lanes_log2"] == 0

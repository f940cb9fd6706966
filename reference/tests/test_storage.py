"""Storage identity, what may be bound, and the lease table."""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import sys
import threading
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from onnx import TensorProto

from mutcache.errors import BindError, PlanError
from mutcache.leases import Claim, Lease, LeaseTable, Use, first_overlap, first_overlap_within
from mutcache.model import Dim, TensorType
from mutcache.requirements import Req
from mutcache.storage import (
    Array,
    ByteRange,
    address_of,
    check_writable_storage,
    dtype_of,
    is_mapped_writable,
    match_dims,
    owner_of,
    pin,
    storage_of,
)

FLOAT = TensorProto.FLOAT


def element_bytes(array: Array) -> set[int]:
    """The address of every byte of every element."""
    start = array.__array_interface__["data"][0]
    return {
        start + sum(i * stride for i, stride in zip(index, array.strides, strict=True)) + byte
        for index in np.ndindex(*array.shape)
        for byte in range(array.itemsize)
    }


@st.composite
def views(draw: st.DrawFn) -> Array:
    """A view of an array: any strides, negative and zero ones included."""
    base = np.zeros(draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)), np.int16)
    if base.ndim and draw(st.booleans()):
        return base.T
    return base[draw(hnp.basic_indices(base.shape, min_dims=0, allow_newaxis=True))] if base.ndim else base


@given(views())
def test_byte_range_is_the_extent_of_the_elements(array: Array) -> None:
    storage = storage_of(np.asarray(array))
    touched = element_bytes(np.asarray(array))
    assert storage.byte_range.is_empty == (not touched)
    if touched:
        assert (storage.byte_range.start, storage.byte_range.stop) == (min(touched), max(touched) + 1)
    assert storage.nbytes == array.size * 2


ranges = st.builds(
    lambda device, start, length: ByteRange(device, start, start + length),
    st.sampled_from(["cpu", "cuda:0"]),
    st.integers(0, 40),
    st.integers(0, 8),
)
claims = st.lists(st.builds(Claim, st.just("value"), ranges, st.sampled_from(Use)), max_size=8)


def shares_a_byte(one: ByteRange, other: ByteRange) -> bool:
    return one.device == other.device and bool(set(range(one.start, one.stop)) & set(range(other.start, other.stop)))


@given(ranges, ranges)
def test_overlap_is_a_common_byte(one: ByteRange, other: ByteRange) -> None:
    assert one.overlaps(other) == shares_a_byte(one, other)


@given(claims, claims)
def test_first_overlap_finds_one_if_there_is_one(asked: list[Claim], held: list[Claim]) -> None:
    pair = first_overlap(asked, held)
    expected = any(shares_a_byte(a.byte_range, h.byte_range) for a, h in itertools.product(asked, held))
    assert (pair is not None) == expected
    if pair is not None:
        assert pair[0] in asked
        assert pair[1] in held
        assert shares_a_byte(pair[0].byte_range, pair[1].byte_range)


@given(claims)
def test_first_overlap_within_finds_one_if_there_is_one(claims: list[Claim]) -> None:
    pair = first_overlap_within(claims)
    overlapping = [
        {id(one), id(other)}
        for one, other in itertools.combinations(claims, 2)
        if shares_a_byte(one.byte_range, other.byte_range)
    ]
    assert ({id(claim) for claim in pair} in overlapping) if pair else not overlapping


def test_only_arrays_have_storage() -> None:
    with pytest.raises(TypeError, match="got list"):
        storage_of([1.0])


def test_address_follows_the_array() -> None:
    for array in (np.zeros(4, np.float16), np.zeros(4, ml_dtypes.bfloat16), np.zeros((0, 3)), np.zeros(())):
        assert address_of(array).value == array.__array_interface__["data"][0]
    array = np.zeros(4)
    address = address_of(array)
    before = address.value
    blockers = []
    while array.__array_interface__["data"][0] == before:
        blockers.append(np.zeros(len(array)))
        array.resize(2 * len(array), refcheck=False)
    assert address.value == array.__array_interface__["data"][0]


def test_memory_stays_where_it_is_pinned() -> None:
    array = np.zeros(4)
    for view in (array, array[1:], array.reshape(2, 2).T.view(np.int64)):
        pinned = pin(view)
        with pytest.raises(ValueError, match="cannot resize"):
            array.resize(2**20, refcheck=False)
        del pinned
    array.resize(5, refcheck=False)
    memory = bytearray(8)
    pinned = pin(np.ndarray((8,), np.uint8, memory))  # holds a reference, but does not export the buffer
    with pytest.raises(BufferError):
        memory.extend(b"more")
    del pinned
    memory.extend(b"more")


class Foreign:
    """Memory of somebody who lends it by NumPy's interface alone."""

    def __init__(self) -> None:
        self.owner = np.zeros(4)
        self.__array_interface__ = self.owner.__array_interface__


def test_memory_of_others_is_kept_as_well_as_can_be() -> None:
    lender = Foreign()
    assert pin(np.asarray(lender)) is lender


def test_owner_is_the_array_that_allocated() -> None:
    array = np.zeros((4, 4))
    assert owner_of(array) is array
    assert owner_of(array[1:].T) is array
    assert owner_of(np.frombuffer(bytearray(8))) is None


@pytest.fixture
def pages() -> Iterator[mmap.mmap]:
    """Three pages of memory, of which the middle one cannot be written."""
    if not sys.platform.startswith("linux"):
        pytest.skip("memory protection is set with Linux's mprotect")
    memory = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    address = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    libc = ctypes.CDLL(None, use_errno=True)
    middle = ctypes.c_void_p(address + mmap.PAGESIZE)
    assert libc.mprotect(middle, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ) == 0
    yield memory
    assert libc.mprotect(middle, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_mappings_tell_what_is_writable(pages: mmap.mmap) -> None:
    size = mmap.PAGESIZE
    whole = np.frombuffer(pages, np.uint8)
    assert whole.flags.writeable, "the array knows nothing of the protection"
    for start, stop, writable in [
        (0, size, True),
        (2 * size, 3 * size, True),
        (size, 2 * size, False),
        (0, size + 1, False),
        (2 * size - 1, 3 * size, False),
        (0, 3 * size, False),
        (size, size, True),
    ]:
        assert is_mapped_writable(storage_of(whole[start:stop]).byte_range) is writable


def test_protected_memory_is_read_only(pages: mmap.mmap) -> None:
    array = np.frombuffer(pages, np.float32)
    with pytest.raises(BindError, match="mapped read-only") as refused:
        check_writable_storage("cache", array, TensorType(FLOAT, None), {})
    assert refused.value.requirement is Req.MC_BIND_002


def test_unmapped_memory_is_not_writable() -> None:
    assert not is_mapped_writable(ByteRange("cpu", 0, 16))


@pytest.mark.parametrize(
    ("dims", "shape", "symbols", "problem"),
    [
        (None, (1, 2), {}, ""),
        (("n", "n"), (3, 3), {}, ""),
        (("n", None, 4), (3, 9, 4), {"n": 3}, ""),
        ((), (), {}, ""),
        (("n", "n"), (3, 4), {}, "dimension 1: 'n' is 3, got 4"),
        (("n",), (3,), {"n": 2}, "dimension 0: 'n' is 2, got 3"),
        ((2,), (3,), {}, "dimension 0: declared 2, got 3"),
        ((2, 2), (2,), {}, "declared rank 2 [2, 2], got rank 1 [2]"),
        ((0,), (1,), {}, "dimension 0: declared 0, got 1"),
    ],
)
def test_dims_match(
    dims: tuple[Dim, ...] | None, shape: tuple[int, ...], symbols: dict[str, int], problem: str
) -> None:
    found = match_dims(dims, shape, symbols)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_unknown_element_type() -> None:
    with pytest.raises(PlanError, match="element type 99"):
        dtype_of(99)


def misaligned(shape: tuple[int, ...], scalar: type[np.generic], by: int) -> Array:
    """An array that starts ``by`` bytes after a multiple of 32."""
    dtype: np.dtype[Any] = np.dtype(scalar)
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = np.zeros(size + 64, np.uint8)
    start = int(-buffer.__array_interface__["data"][0] % 32 + by)
    return buffer[start : start + size].view(dtype).reshape(shape)


class Subclass(np.ndarray[tuple[int, ...], np.dtype[np.float32]]):
    """An array of another class: its memory is like any other."""


DECLARED = TensorType(FLOAT, (2, "n", 3))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 4, 3), np.float32),
        np.zeros((2, 0, 3), np.float32),
        np.zeros((2, 4, 3), np.float32).view(Subclass),
        misaligned((2, 4, 3), np.float32, 4),
        np.zeros((4, 4, 3), np.float32)[:2],
        np.zeros((2, 1, 3), np.float32)[:, ::-1],
    ],
    ids=["plain", "empty", "subclass", "aligned to its element", "a contiguous part", "one row"],
)
def test_storage_that_may_be_bound(array: Array) -> None:
    symbols: dict[str, int] = {}
    storage = check_writable_storage("cache", array, DECLARED, symbols)
    assert storage.address == array.__array_interface__["data"][0]
    assert symbols == {"n": array.shape[1]}


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        ([[[0.0]]], "got list"),
        (np.float32(0), "got float32"),
        (np.zeros((2, 4, 3), np.float64), "declared element type float32, got float64"),
        (np.zeros((2, 4, 3), ">f4"), "got >f4"),
        (np.zeros((2, 4, 3), ml_dtypes.bfloat16), "got bfloat16"),
        (np.zeros((2, 4, 3), object), "got object"),
        (np.zeros((2, 4, 4), np.float32), "dimension 2: declared 3, got 4"),
        (np.zeros((4, 3), np.float32), "declared rank 3"),
        (np.zeros((2, 4, 6), np.float32)[..., ::2], "not contiguous"),
        (np.zeros((2, 4, 3), np.float32, order="F"), "not contiguous"),
        (np.zeros((2, 4, 3), np.float32)[:, ::-1], "not contiguous"),
        (np.broadcast_to(np.float32(0), (2, 4, 3)), "not contiguous"),
        (misaligned((2, 4, 3), np.float32, 2), "not a multiple of 4"),
    ],
)
def test_storage_that_is_laid_out_otherwise(array: object, problem: str) -> None:
    with pytest.raises(BindError) as refused:
        check_writable_storage("cache", array, DECLARED, {})
    assert refused.value.requirement is Req.MC_BIND_007
    assert problem in refused.value.message


def test_complex_elements_are_aligned_like_their_components() -> None:
    declared = TensorType(TensorProto.COMPLEX128, None)
    check_writable_storage("cache", misaligned((4,), np.complex128, 8), declared, {})
    with pytest.raises(BindError, match="not a multiple of 8"):
        check_writable_storage("cache", misaligned((4,), np.complex128, 4), declared, {})


def test_read_only_array() -> None:
    array = np.zeros((2, 4, 3), np.float32)
    array.flags.writeable = False
    with pytest.raises(BindError, match="read-only") as refused:
        check_writable_storage("cache", array, DECLARED, {})
    assert refused.value.requirement is Req.MC_BIND_002


def claim(start: int, stop: int, use: Use = Use.MUTABLE, device: str = "cpu") -> Claim:
    return Claim("value", ByteRange(device, start, stop), use)


@pytest.mark.parametrize(
    ("held", "asked", "requirement"),
    [
        (Use.MUTABLE, Use.MUTABLE, Req.MC_BIND_005),
        (Use.MUTABLE, Use.OUTPUT, Req.MC_BIND_005),
        (Use.OUTPUT, Use.MUTABLE, Req.MC_BIND_005),
        (Use.INITIALIZER, Use.MUTABLE, Req.MC_BIND_003),
        (Use.MUTABLE, Use.INITIALIZER, Req.MC_BIND_012),
        (Use.INITIALIZER, Use.OUTPUT, Req.MC_BIND_003),
        (Use.OUTPUT, Use.INITIALIZER, Req.MC_BIND_003),
        (Use.OUTPUT, Use.OUTPUT, None),
        (Use.INITIALIZER, Use.INITIALIZER, None),
    ],
)
def test_which_uses_exclude_each_other(held: Use, asked: Use, requirement: Req | None) -> None:
    table = LeaseTable()
    lease = table.acquire([claim(0, 8, held)])
    overlapping = claim(7, 16, asked)
    if requirement is None:
        table.acquire([overlapping]).release()
    else:
        with pytest.raises(BindError) as refused:
            table.acquire([claim(100, 200), overlapping])
        assert refused.value.requirement is requirement
        assert list(table.held().values()) == [(claim(0, 8, held),)], "a refused lease takes nothing"
    table.acquire([claim(8, 16, asked), claim(0, 0, asked), claim(0, 8, asked, "cuda:0")]).release()
    lease.release()
    table.acquire([overlapping]).release()
    assert not table.held()


@given(st.lists(st.tuples(st.sampled_from(["acquire", "add", "drop", "release"]), claims, st.integers(0, 9))))
def test_leases_are_what_a_list_of_all_claims_says(steps: list[tuple[str, list[Claim], int]]) -> None:
    """Any sequence of leases, grown, shrunk and released, against a look at every pair."""
    table = LeaseTable()
    model: list[tuple[Lease, list[Claim]]] = []

    def is_free(asked: Claim, own: list[Claim] | None = None) -> bool:
        held = [one for _, group in model for one in group if one.use in asked.use.excluded or group is own]
        return not any(shares_a_byte(asked.byte_range, one.byte_range) for one in held)

    for step, asked, at in steps:
        lease, group = model[at % len(model)] if model else (None, [])
        if step == "acquire":
            written = [one for one in asked if one.use is not Use.INITIALIZER]
            is_sound = all(map(is_free, asked)) and not any(
                shares_a_byte(one.byte_range, other.byte_range) for one, other in itertools.combinations(written, 2)
            )
            if is_sound:
                model.append((table.acquire(asked), list(dict.fromkeys(asked))))
            else:
                with pytest.raises(BindError):
                    table.acquire(asked)
        elif step == "release" and lease is not None:
            lease.release()
            model = [entry for entry in model if entry[0] is not lease]
        elif step == "drop" and lease is not None:
            for one in [one for one in group if one.use is Use.MUTABLE][:1]:
                table.drop(lease, one)
                group.remove(one)
        elif step == "add" and lease is not None:
            for one in (Claim(f"page {len(group)}", entry.byte_range, Use.MUTABLE) for entry in asked):
                if is_free(one, group):
                    table.add(lease, one)
                    group.append(one)
                else:
                    with pytest.raises(BindError):
                        table.add(lease, one)
        assert {key: set(group) for key, group in table.held().items()} == {
            lease.key: set(group) for lease, group in model
        }


def test_memory_that_was_freed_before_its_lease_is_found_to_have_ended() -> None:
    table = LeaseTable()
    first, second = table.acquire([claim(0, 8)]), table.acquire([])
    first.release()  # by the garbage collector, say, in a thread that does not wait for the table
    table.enter(second, claim(0, 8))
    table.enter(second, claim(8, 16))
    with pytest.raises(BindError):
        table.acquire([claim(4, 5)])
    table.drop(second, claim(0, 8))
    table.acquire([claim(0, 8)]).release()
    second.release()
    table.acquire([claim(0, 16)]).release()


def test_one_lease_does_not_overlap_itself() -> None:
    table = LeaseTable()
    for use in (Use.MUTABLE, Use.OUTPUT):
        with pytest.raises(BindError) as refused:
            table.acquire([claim(0, 8), claim(4, 5, use)])
        assert refused.value.requirement is Req.MC_BIND_004
    assert not table.held()


def test_release_twice_releases_once() -> None:
    table = LeaseTable()
    first = table.acquire([claim(0, 8)])
    first.release()
    second = table.acquire([claim(0, 8)])
    first.release()
    assert len(table.held()) == 1
    second.release()


def test_a_forgotten_lease_ends() -> None:
    table = LeaseTable()
    lease = table.acquire([claim(0, 8)])
    del lease
    gc.collect()
    table.acquire([claim(0, 8)]).release()
    assert not table.held()


def test_leases_exclude_threads() -> None:
    table = LeaseTable()
    inside: list[int] = []
    most: list[int] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(200):
            try:
                lease = table.acquire([claim(0, 8)])
            except BindError:
                continue
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            lease.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert not table.held()

"""CacheUpdate against the functional oracle: the written range, every other byte, and what is refused."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from onnx import TensorProto

from mutcache.errors import RunError
from mutcache.ops.dense import Attributes, CacheUpdate, Names
from mutcache.requirements import Req
from mutcache.storage import Array, dtype_of
from mutcache_conformance.oracle import OracleRefusal, cache_update

NAMES = Names("CacheUpdate (#3)", "cache", "values", "position")
INT64_MAX = 2**63 - 1

#: Every element type of the operator: whole bytes, fixed width.
ELEMENT_TYPES = [
    number
    for name, number in TensorProto.DataType.items()
    if name not in ("UNDEFINED", "STRING")
    and not name.startswith(("INT4", "UINT4", "INT2", "UINT2", "FLOAT4", "FLOAT6"))
]


def random_bytes(shape: tuple[int, ...], element_type: int, seed: int) -> Array:
    """An array of random bit patterns: NaN payloads, signalling ones included, and bytes that are no BOOL."""
    dtype = dtype_of(element_type)
    content = np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize)
    return np.frombuffer(bytearray(content), dtype).reshape(shape)


@st.composite
def update_calls(draw: st.DrawFn) -> tuple[Array, Array, Array, Attributes]:
    """A cache, operands that fit it (the position may not), and attributes."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=4))
    rank = len(shape)
    axis = draw(st.integers(0, rank - 1))
    rows = draw(st.none() | st.integers(0, rank - 1).filter(lambda other: other != axis)) if rank > 1 else None
    circular = draw(st.booleans())
    length = draw(st.integers(0, 5))
    starts = st.integers(-2, 9) | st.sampled_from([INT64_MAX, INT64_MAX - length, -INT64_MAX - 1])
    count = 1 if rows is None else shape[rows]
    position = np.array(draw(st.lists(starts, min_size=count, max_size=count)), np.int64)
    element_type = draw(st.sampled_from(ELEMENT_TYPES))
    values = random_bytes((*shape[:axis], length, *shape[axis + 1 :]), element_type, draw(st.integers(0, 2**32)))
    if draw(st.booleans()):  # operands need not be contiguous
        values = np.asfortranarray(values)
    attributes = Attributes(
        axis - rank if draw(st.booleans()) else axis,
        circular,
        None if rows is None else rows - rank if draw(st.booleans()) else rows,
    )
    cache = random_bytes(shape, element_type, draw(st.integers(0, 2**32)))
    return cache, values, position.reshape(() if rows is None else -1), attributes


def oracle(cache: Array, values: Array, position: Array, attributes: Attributes) -> Array:
    mode = "circular" if attributes.circular else "linear"
    return cache_update(cache, values, position, axis=attributes.axis, mode=mode, batch_axis=attributes.batch_axis)


@given(update_calls())
@settings(max_examples=400, deadline=None)
def test_update_is_the_functional_update_in_place(call: tuple[Array, Array, Array, Attributes]) -> None:
    cache, values, position, attributes = call
    before = cache.tobytes()
    try:
        expected = oracle(*call)
    except OracleRefusal as refusal:
        with pytest.raises(RunError) as refused:
            CacheUpdate(cache, attributes, NAMES).write(values, position)
        is_negative = refusal.requirement is Req.MC_DENSE_004
        assert refused.value.requirement is (Req.MC_DENSE_004 if is_negative else Req.MC_DENSE_003)
        assert cache.tobytes() == before
    else:
        CacheUpdate(cache, attributes, NAMES).write(values, position)
        assert cache.tobytes() == expected.tobytes()


@given(update_calls(), st.lists(st.integers(0, 4), min_size=2, max_size=5))
@settings(deadline=None)
def test_a_prepared_update_takes_values_of_any_length(
    call: tuple[Array, Array, Array, Attributes], lengths: list[int]
) -> None:
    cache, _, _, attributes = call
    attributes = Attributes(attributes.axis, circular=True)
    update = CacheUpdate(cache, attributes, NAMES)
    for length in lengths:
        shape = list(cache.shape)
        shape[attributes.axis] = min(length, shape[attributes.axis])
        arguments = random_bytes(tuple(shape), _number_of(cache), length), np.array(length)
        expected = oracle(cache, *arguments, attributes).tobytes()
        update.write(*arguments)
        assert cache.tobytes() == expected


def _number_of(array: Array) -> int:
    return next(number for number in ELEMENT_TYPES if dtype_of(number) == array.dtype)


@pytest.mark.parametrize("element_type", ELEMENT_TYPES, ids=TensorProto.DataType.Name)
def test_every_bit_pattern_survives(element_type: int) -> None:
    width = dtype_of(element_type).itemsize
    unsigned = np.arange(2 ** min(16, 8 * width), dtype=np.uint64)
    # All 8 and 16 bit patterns; of wider types those that differ in the high bits, where the NaN of floats are.
    content = b"".join(
        int(value << (8 * width - 16) if width > 2 else value).to_bytes(width, "little") for value in unsigned
    )
    values = np.frombuffer(content, dtype_of(element_type))
    cache = np.zeros(values.shape, values.dtype)
    CacheUpdate(cache, Attributes(axis=0), NAMES).write(values, np.array(0))
    assert cache.tobytes() == content


@pytest.mark.parametrize(
    ("position", "length", "capacity", "requirement"),
    [
        (6, 4, 8, Req.MC_DENSE_003),
        (9, 0, 8, Req.MC_DENSE_003),
        (INT64_MAX, 1, 8, Req.MC_DENSE_003),
        (INT64_MAX - 1, 2, 8, Req.MC_DENSE_003),
        (0, 1, 0, Req.MC_DENSE_003),
        (-1, 1, 8, Req.MC_DENSE_004),
        (-1, 0, 8, Req.MC_DENSE_004),
        (-(2**63), 8, 8, Req.MC_DENSE_004),
    ],
)
def test_refusal_shows_both_sides(position: int, length: int, capacity: int, requirement: Req) -> None:
    cache = np.zeros((2, capacity, 3), np.float32)
    with pytest.raises(RunError) as refused:
        CacheUpdate(cache, Attributes(), NAMES).write(np.ones((2, length, 3), np.float32), np.array(position))
    assert refused.value.requirement is requirement
    assert refused.value.values == {
        "node": "CacheUpdate (#3)",
        "position": position,
        "length": length,
        "capacity": capacity,
    }
    assert "CacheUpdate (#3)" in str(refused.value)
    assert str(position) in str(refused.value)
    assert not cache.any()


def test_refusal_names_the_row() -> None:
    cache = np.zeros((3, 4, 2), np.int8)
    update = CacheUpdate(cache, Attributes(batch_axis=0), NAMES)
    with pytest.raises(RunError, match=r"'position'\[2\]: position 3 \+ length 2 of 'values' > capacity 4") as refused:
        update.write(np.ones((3, 2, 2), np.int8), np.array([0, 2, 3]))
    assert refused.value.values["row"] == 2
    assert not cache.any(), "the rows before the failing one are not written either"


def test_circular_refuses_to_lap_itself() -> None:
    cache = np.zeros((4, 1), np.int8)
    with pytest.raises(RunError, match="length 5 of 'values' > capacity 4") as refused:
        CacheUpdate(cache, Attributes(circular=True), NAMES).write(np.ones((5, 1), np.int8), np.array(0))
    assert refused.value.requirement is Req.MC_DENSE_003
    assert not cache.any()


@pytest.mark.parametrize(
    ("values", "position"),
    [
        (np.ones((2, 1, 3), np.float64), np.array(0)),
        (np.ones((2, 1, 1), np.float32), np.array(0)),
        (np.ones((1, 3), np.float32), np.array(0)),
        (np.ones((2, 1, 3), np.float32), np.array([0])),
        (np.ones((2, 1, 3), np.float32), np.array(0, np.int32)),
        (np.ones((2, 1, 3), np.float32), np.array(0.0)),
    ],
    ids=["element type", "broadcast", "rank", "position rank", "position int32", "position float"],
)
def test_operands_that_do_not_fit_are_refused(values: Array, position: Array) -> None:
    cache = np.zeros((2, 4, 3), np.float32)
    with pytest.raises(RunError) as refused:
        CacheUpdate(cache, Attributes(), NAMES).write(values, position)
    assert refused.value.requirement is Req.MC_SHAPE_006
    assert not cache.any()

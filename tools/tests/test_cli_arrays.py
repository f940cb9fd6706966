"""Values on the command line and in .npy files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mutcache.model import Dim, TensorType, Value
from mutcache_tools.arrays import parse_value, read_npy, write_npy, zeros
from mutcache_tools.output import UsageError

FLOAT, INT64, UINT8 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.UINT8
BOOL, BFLOAT16 = onnx.TensorProto.BOOL, onnx.TensorProto.BFLOAT16

#: Element types as ONNX and as NumPy know them, with the width NumPy stores.
NARROW: dict[int, type[np.generic]] = {
    onnx.TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    onnx.TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    onnx.TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    onnx.TensorProto.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu,
}


def value(elem_type: int, *dims: Dim) -> Value:
    return Value("x", TensorType(elem_type, dims))


@pytest.mark.parametrize(
    ("elem_type", "text", "expected"),
    [
        (INT64, "7", np.array(7)),
        (INT64, "-9223372036854775808", np.array(-(2**63))),
        (FLOAT, "7", np.array(7, np.float32)),
        (FLOAT, "[[1.5, -2]]", np.array([[1.5, -2]], np.float32)),
        (UINT8, "[0, 255]", np.array([0, 255], np.uint8)),
        (BOOL, "[true, false]", np.array([True, False])),
        (INT64, "[]", np.zeros(0, np.int64)),
        (BFLOAT16, "1.5", np.array(1.5, ml_dtypes.bfloat16)),
    ],
)
def test_literal_takes_the_declared_type(elem_type: int, text: str, expected: np.ndarray[Any, Any]) -> None:
    array = parse_value(value(elem_type), text)
    assert (array.dtype, array.shape, array.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


@pytest.mark.parametrize(
    ("elem_type", "text"),
    [
        (INT64, "1.5"),
        (INT64, "9223372036854775808"),
        (INT64, "true"),
        (INT64, "1" * 5000),
        (UINT8, "256"),
        (UINT8, "-1"),
        (BOOL, "1"),
        (FLOAT, "[[1], [2, 3]]"),
        (FLOAT, '["a"]'),
        (FLOAT, "[null]"),
        (FLOAT, "[" * 100_000),
        (FLOAT, "nothing.npy"),
        (FLOAT, "{}"),
    ],
)
def test_literal_that_is_no_such_tensor_is_refused(elem_type: int, text: str) -> None:
    with pytest.raises(UsageError):
        parse_value(value(elem_type), text)


NUMBERS = st.one_of(hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes())


@given(array=hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, min_side=0)))
def test_arrays_survive_the_file(array: np.ndarray[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("npy") / "x.npy"
    write_npy(str(path), array)
    read = read_npy(str(path), value(FLOAT))
    native = array.astype(array.dtype.newbyteorder("="))
    assert (read.dtype, read.shape, read.tobytes()) == (native.dtype, native.shape, native.tobytes())


@pytest.mark.parametrize("elem_type", NARROW)
def test_narrow_types_survive_the_file_as_bytes(elem_type: int, tmp_path: Path) -> None:
    array = np.arange(256, dtype=np.uint8).view(NARROW[elem_type]).reshape(2, -1)
    write_npy(str(tmp_path / "x.npy"), array)
    read = read_npy(str(tmp_path / "x.npy"), value(elem_type))
    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())
    # NumPy alone can read it too, and what NumPy wrote itself is understood.
    assert np.load(tmp_path / "x.npy").dtype.kind == "V"
    if elem_type == BFLOAT16:
        np.save(tmp_path / "y.npy", array)
        assert read_npy(str(tmp_path / "y.npy"), value(elem_type)).tobytes() == array.tobytes()
    with pytest.raises(UsageError, match=r"untyped elements of .* has elements of 8"):
        read_npy(str(tmp_path / "x.npy"), value(INT64))


def test_array_from_a_file_is_row_major_and_writable(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)))
    array = read_npy(str(tmp_path / "x.npy"), value(FLOAT))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]


def bad_files() -> dict[str, bytes]:
    header = json.dumps({"descr": "<f4", "fortran_order": False, "shape": "S"}).replace("false", "False")

    def npy(shape: str, data: bytes = b"") -> bytes:
        text = header.replace('"S"', shape).encode().ljust(117) + b"\n"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data

    return {
        "empty": b"",
        "text": b"no array",
        "zip": b"PK\x03\x04 and so on",
        "truncated header": npy("(2,)")[:20],
        "truncated data": npy("(2,)", bytes(4)),
        "absurd shape": npy("(1000000000000000000, 1000000000000000000)"),
        "negative shape": npy("(-3,)", bytes(12)),
        "no tuple": npy("7"),
        "future version": b"\x93NUMPY\x09\x00\x00\x00",
    }


@pytest.mark.parametrize("damage", bad_files())
def test_file_that_is_no_npy_is_refused(damage: str, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(bad_files()[damage])
    with pytest.raises(UsageError, match=r"x\.npy"):
        read_npy(str(tmp_path / "x.npy"), value(FLOAT))


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(UsageError, match=r"x\.npy"):
        read_npy(str(tmp_path / "x.npy"), value(FLOAT))


def test_zeros_have_the_declared_shape() -> None:
    array = zeros(value(BFLOAT16, "batch", 2, "n"), {"batch": 1, "n": 0})
    assert (array.dtype, array.shape) == (np.dtype(ml_dtypes.bfloat16), (1, 2, 0))


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (value(FLOAT, "batch", 2), "the symbol 'batch'"),
        (value(FLOAT, None), "dimension 0"),
        (value(FLOAT, -1), "negative"),
        (value(FLOAT, 2**62, 2**62), "address space"),
        (Value("x", TensorType(FLOAT, None)), "no declared shape"),
        (Value("x"), "no tensor"),
    ],
)
def test_zeros_of_an_open_or_absurd_shape_are_refused(declared: Value, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        zeros(declared, {})

"""Values of a model's inputs and outputs as they stand on a command line and in ``.npy`` files.

``.npy`` has no names for ONNX's narrow types (BFLOAT16, FLOAT8...): NumPy stores their bytes as void elements. Here
such elements take the type that the model declares.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from mutcache.model import Dim, TensorType, Value
from mutcache.storage import dtype_of
from mutcache_tools.output import UsageError

Array = NDArray[np.generic]


def type_text(array: Array) -> str:
    """The element type as ONNX calls it, for example FLOAT16."""
    try:
        return str(TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(array.dtype)))
    except (KeyError, ValueError):
        return str(array.dtype)


def declared_dtype(value: Value) -> np.dtype[np.generic]:
    """NumPy's (or ml_dtypes') type for the declared element type of a tensor."""
    if not isinstance(value.type, TensorType):
        raise UsageError(f"{value.name!r} is declared as no tensor; the command line can only give tensors")
    return dtype_of(value.type.elem_type)


def parse_value(value: Value, text: str) -> Array:
    """What ``NAME=TEXT`` gives to the input ``value``: a JSON number, boolean or (nested) list, or a ``.npy`` file."""
    try:
        literal = json.loads(text)
    except (ValueError, RecursionError):
        literal = None
    if not isinstance(literal, bool | int | float | list):
        return read_npy(text, value)
    return _from_literal(value, literal)


def _from_literal(value: Value, literal: float | list[object]) -> Array:
    dtype = declared_dtype(value)
    problem = f"{json.dumps(literal)} is no {dtype} tensor, as {value.name!r} is declared"
    try:
        given = np.array(literal)
    except (ValueError, OverflowError):
        raise UsageError(problem, "lists of one level must be of one length") from None
    integers = given.dtype.kind in "iu"
    if dtype.kind == "b":
        fits = given.dtype.kind == "b"
    elif dtype.kind in "iu":
        limits = np.iinfo(cast("np.dtype[np.integer]", dtype))
        fits = given.size == 0 or (integers and limits.min <= int(given.min()) and int(given.max()) <= limits.max)
    elif dtype.kind in "SUO":
        fits = given.dtype.kind == "U"
    else:
        fits = integers or given.dtype.kind == "f"
    if not fits:
        raise UsageError(problem)
    return np.ascontiguousarray(given.astype(dtype)).reshape(given.shape)


def read_npy(path: str, value: Value) -> Array:
    """The array of a ``.npy`` file, in memory of its own; pickled objects are not loaded.

    Raises:
        UsageError: the file is missing or no plain ``.npy`` file.
    """
    try:
        with Path(path).open("rb") as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise UsageError(
            f"{value.name}={path}: neither a JSON number or list nor a readable file ({error.strerror})"
        ) from None
    except (ValueError, EOFError, TypeError, SyntaxError, OverflowError) as error:
        raise UsageError(f"{path!r} is no readable .npy file: {' '.join(str(error).split())}") from None
    array = np.require(array, array.dtype.newbyteorder("="), "C")
    if array.dtype.kind == "V" and array.dtype.names is None:
        dtype = declared_dtype(value)
        if dtype.itemsize != array.dtype.itemsize:
            raise UsageError(
                f"{path!r} holds untyped elements of {array.dtype.itemsize} bytes, "
                f"but {value.name!r} has elements of {dtype.itemsize} ({dtype})"
            )
        array = array.view(dtype)
    return array


def write_npy(path: str, array: Array) -> None:
    """Write the array; a failure leaves what was there before."""
    target = Path(path)
    # Types registered with NumPy (isbuiltin 2) have no name in .npy, and some would get a wrong one.
    named = array.view(np.dtype((np.void, array.dtype.itemsize))) if array.dtype.isbuiltin == 2 else array
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        staging = Path(folder) / "array.npy"
        with staging.open("wb") as file:
            np.lib.format.write_array(file, named, allow_pickle=False)
        os.replace(staging, target)


def zeros(value: Value, dims: Mapping[str, int]) -> Array:
    """A zero-filled array of the declared shape; ``dims`` gives the symbols their sizes.

    Raises:
        UsageError: a dimension is open, or the array is beyond what memory can address.
    """
    dtype = declared_dtype(value)
    shape = resolve_shape(value, dims)
    if math.prod(shape) * dtype.itemsize > np.iinfo(np.intp).max:
        raise UsageError(f"{value.name!r} of shape {list(shape)} and type {dtype} exceeds the address space")
    return np.zeros(shape, dtype)


def resolve_shape(value: Value, dims: Mapping[str, int]) -> tuple[int, ...]:
    """The declared shape as numbers; raises UsageError naming a dimension that has none."""
    declared: tuple[Dim, ...] | None = value.type.dims if isinstance(value.type, TensorType) else None
    if declared is None:
        raise UsageError(f"{value.name!r} has no declared shape", f"give it as a file: --input {value.name}=FILE.npy")
    shape = []
    for axis, dim in enumerate(declared):
        size = dims.get(dim) if isinstance(dim, str) else dim
        if size is None:
            open_dim = f"the symbol {dim!r}" if dim else "nothing"
            hint = f"--dim '{dim}=N'" if dim else f"give it as a file: --input {value.name}=FILE.npy"
            raise UsageError(f"dimension {axis} of {value.name!r} is {open_dim}, not a number", hint)
        if size < 0:
            raise UsageError(f"dimension {axis} of {value.name!r} is negative: {size}")
        shape.append(size)
    return tuple(shape)

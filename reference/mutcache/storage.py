"""Storage identity: where an array lies, whether a run may write to it, and what it is declared to be.

What depends on the kind of array stands here and nowhere else: a device array becomes a :class:`Storage`
in :func:`storage_of`, and all rules below see only that.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import onnx

from mutcache.errors import BindError, PlanError
from mutcache.model import Dim, TensorType
from mutcache.requirements import Req

Array = np.ndarray[Any, np.dtype[Any]]

#: Where the addresses of a device end.
_ADDRESSES: Final = 1 << 64

_MAPPINGS: Final = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes from ``start`` up to, not including, ``stop`` of one device's address space."""

    device: str
    start: int
    stop: int

    def overlaps(self, other: ByteRange) -> bool:
        """Whether a byte belongs to both; an empty range overlaps nothing (MC-BIND-007)."""
        return self.device == other.device and max(self.start, other.start) < min(self.stop, other.stop)

    @property
    def is_empty(self) -> bool:
        """Whether the range has no byte."""
        return self.start == self.stop

    @property
    def end(self) -> tuple[str, int]:
        """The end, comparable across devices."""
        return self.device, self.stop

    def __str__(self) -> str:
        return f"bytes {self.start:#x}..{self.stop:#x} ({self.stop - self.start})"


@dataclass(frozen=True, slots=True)
class Storage:
    """What is known of the memory behind an array.

    Attributes:
        address: address of the element with all indices 0.
        nbytes: bytes of the elements; the extent of a strided array is ``byte_range``.
        byte_range: from the lowest to the highest byte of any element.
        dtype: element type.
        shape: dimensions.
        strides: bytes per step of each dimension.
        contiguous: row-major without gaps.
        writable: what the array says of itself; see also :func:`is_mapped_writable`.
        device: address space, ``cpu`` for host memory.
    """

    address: int
    nbytes: int
    byte_range: ByteRange
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    contiguous: bool
    writable: bool
    device: str = "cpu"


class DeviceArray(Protocol):
    """An array in the memory of a CUDA device, of whatever library: CuPy's have this."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """Version 3 of the CUDA array interface."""


def is_device_array(value: object) -> bool:
    """Whether ``value`` is an array in the memory of a CUDA device, of whatever library.

    Its type is asked: the value itself may raise whatever it likes when it is.
    """
    return hasattr(type(value), "__cuda_array_interface__") and not isinstance(value, np.ndarray)


def to_host(value: Any) -> Any:
    """``value`` with copies in host memory for device arrays, of what everything launched before leaves there.

    Raises:
        TypeError: a device array of a library that this package does not know has no ``get()``.
    """
    if isinstance(value, list | tuple):
        return type(value)(map(to_host, value))
    if not is_device_array(value):
        return value
    if not hasattr(value, "get"):
        raise TypeError(f"{type(value).__name__} has no get(): copy it to the host by means of its own library")
    return value.get()


def storage_of(array: object) -> Storage:
    """The storage of a NumPy array (or of a subclass: what counts is its memory), or of a device array.

    Raises:
        TypeError: ``array`` is no array that this package knows.
    """
    if is_device_array(array):
        try:
            return _device_storage(array)
        except Exception as error:  # the array is somebody else's, and may say of itself what it likes
            raise TypeError(f"{type(array).__name__} has no sound __cuda_array_interface__: {error}") from error
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected a numpy.ndarray, got {type(array).__name__}")
    array = np.asarray(array)  # a subclass may say of itself what it likes
    low, high = np.lib.array_utils.byte_bounds(array)
    return Storage(
        address=array.__array_interface__["data"][0],
        nbytes=array.nbytes,
        # NumPy gives an empty array the extent of one element.
        byte_range=ByteRange("cpu", low, high if array.size else low),
        dtype=array.dtype,
        shape=array.shape,
        strides=array.strides,
        contiguous=array.flags.c_contiguous,
        writable=array.flags.writeable,
    )


def _device_storage(array: Any) -> Storage:
    """The storage that an array of whatever library tells of; what it says is judged, for it may be anything."""
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise ValueError("it has a mask")
    dtype, device = _device_dtype(array, interface), _device_name(array)
    shape = tuple(map(operator.index, interface["shape"]))
    address, is_read_only = operator.index(interface["data"][0]), bool(interface["data"][1])
    dense = tuple(dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    told = interface.get("strides")
    strides = dense if told is None else tuple(map(operator.index, told))
    if len(strides) != len(shape) or any(size < 0 for size in shape):
        raise ValueError(f"its shape is {shape}, its strides are {strides}")
    is_empty = 0 in shape
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low = address + sum(step for step in steps if step < 0)
    high = address + sum(step for step in steps if step > 0) + dtype.itemsize
    if is_empty:
        low = high = address
    if not 0 <= low <= high <= _ADDRESSES:
        raise ValueError(f"it would be at {low} to {high}")
    return Storage(
        address=address,
        nbytes=dtype.itemsize * math.prod(shape),
        byte_range=ByteRange(device, low, high),
        dtype=dtype,
        shape=shape,
        strides=strides,
        contiguous=is_empty
        or all(size == 1 or stride == own for size, stride, own in zip(shape, strides, dense, strict=True)),
        writable=not is_read_only,
        device=device,
    )


def _device_name(array: Any) -> str:
    """The address space. Where an array does not tell its device, it is taken to be the first; backends know better."""
    place = getattr(array, "device", None)
    for number in (getattr(place, "id", None), getattr(place, "index", None)):  # CuPy's name of it, and that of others
        if isinstance(number, int | np.integer) and not isinstance(number, bool):
            return f"cuda:{number}"
    return "cuda:0"


def _device_dtype(array: Any, interface: Mapping[str, Any]) -> np.dtype[Any]:
    """The element type. The interface has no names for those that NumPy does not have itself: the array tells them."""
    typestr = interface["typestr"]
    try:
        told: np.dtype[Any] = np.dtype(typestr)
    except TypeError:  # "<f1", as ml_dtypes calls one of its own
        told = np.dtype(f"V{int(typestr[2:])}")
    named = getattr(array, "dtype", None)
    try:
        found = told if named is None else np.dtype(named)
    except TypeError:  # of a library that has element types of its own
        found = told
    if found.hasobject:  # what a device holds are no references
        raise ValueError(f"its elements are {found}")
    if found != told and (told.kind != "V" or found.itemsize != told.itemsize):
        raise ValueError(f"its elements are {found}, and {told} by its interface")
    return found


class Address(Protocol):
    """Where the first element of an array is now."""

    @property
    def value(self) -> int | None:
        """The address; None is address 0, or an array that tells none any more."""


def address_of(array: Any) -> Address:
    """The address of ``array``, which may be read for as long as the array lives.

    ``__array_interface__`` builds a dictionary, which takes as long as a short update. The pointer that it reports
    follows the header of the array object: NumPy's binary interface cannot move it, since C extensions have it
    compiled in.
    """
    if is_device_array(array):
        return _ReportedAddress(array)
    pointer = c_void_p.from_address(id(array) + object.__basicsize__)
    reported = _ReportedAddress(array)
    return pointer if pointer.value == reported.value else reported


class _ReportedAddress:
    """The address as the array reports it."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def value(self) -> int | None:
        try:
            return storage_of(self._array).address
        except TypeError:  # a device array that was sound when it was lent
            return None


def owner_of(array: Any) -> Array | None:
    """The NumPy array whose own allocation holds the elements of ``array``, or None if the memory is not of one."""
    if is_device_array(array):
        return None
    last = _last_view(array)
    return last if last.base is None and last.flags.owndata else None


def pin(array: Any) -> object:
    """Keep the memory of ``array`` where it is, for as long as the result is kept.

    ``resize(refcheck=False)`` would reallocate an array under its views, but not one that is weakly referenced. Memory
    that is not an array's, of a ``bytearray`` or a mapping, cannot be resized or closed while a buffer is exported.
    That of a device stays for as long as there is a reference to its array.
    """
    if is_device_array(array):
        return array
    last = _last_view(array)
    lender: Any = last.base
    if lender is None:
        return weakref.ref(last)
    try:
        return memoryview(lender)
    except TypeError:  # there is no way to ask for more than a reference
        return lender


def _last_view(array: Array) -> Array:
    """The array at the end of the chain of views."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def is_mapped_writable(byte_range: ByteRange) -> bool:
    """Whether the process may write every page of the range; see :func:`first_unwritable`."""
    return first_unwritable((byte_range,)) is None


def first_unwritable(ranges: Iterable[ByteRange]) -> ByteRange | None:
    """The first of disjoint ranges, by address, of which the process may not write every memory page, or None.

    An array can claim to be writable over a read-only mapping, and the first write would kill the process. The
    mappings of the process say what is true without touching a page. Where the system does not list them (anything
    but Linux), the array's own flag is all there is.
    """
    pending = deque(sorted(one for one in ranges if one.device == "cpu" and not one.is_empty))
    if not pending or not _MAPPINGS.exists():
        return None
    reached = pending[0].start
    with _MAPPINGS.open(encoding="utf-8", errors="replace") as mappings:
        for line in mappings:  # ascending and disjoint
            bounds, permissions = line.split(" ", 2)[:2]
            low, high = (int(bound, 16) for bound in bounds.split("-"))
            while high > reached:
                if low > reached or "w" not in permissions:
                    return pending[0]
                reached = high
                if reached < pending[0].stop:
                    break
                pending.popleft()
                if not pending:
                    return None
                reached = pending[0].start
    return pending[0]


def dtype_of(elem_type: int) -> np.dtype[Any]:
    """The NumPy element type of a TensorProto.DataType.

    Raises:
        PlanError: the number is none of ONNX's types.
    """
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(elem_type)
    except KeyError:
        raise PlanError(f"element type {elem_type} is none of ONNX's tensor types") from None


def is_dense(storage: Storage) -> bool:
    """Whether kernels can read the storage where it is: contiguous, and aligned to its elements."""
    return storage.contiguous and not (storage.nbytes and storage.address % storage.dtype.alignment)


def match_dims(dims: tuple[Dim, ...] | None, shape: tuple[int, ...], symbols: dict[str, int]) -> str:
    """What is wrong with ``shape`` against declared dimensions, or "".

    A symbol seen for the first time takes its size and is entered in ``symbols``.
    """
    if dims is None:
        return ""
    if len(dims) != len(shape):
        return f"declared rank {len(dims)} {show_dims(dims)}, got rank {len(shape)} {show_dims(shape)}"
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        expected = symbols.setdefault(dim, size) if isinstance(dim, str) else dim
        if expected is not None and expected != size:
            known = f"{dim!r} is {expected}" if isinstance(dim, str) else f"declared {expected}"
            return f"dimension {axis}: {known}, got {size} (declared {show_dims(dims)}, got {show_dims(shape)})"
    return ""


def show_dims(dims: Sequence[Dim]) -> str:
    """Dimensions as messages print them: ``[2, batch, ?]``."""
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def check_writable_storage(
    name: str,
    array: object,
    declared: TensorType,
    symbols: dict[str, int],
    *,
    in_place: bool = True,
    device: str = "cpu",
) -> Storage:
    """The storage of ``array``, if a run may write to it as the value ``name``.

    Args:
        name: the value, for messages.
        array: what the caller wants to bind.
        declared: the value's declared type.
        symbols: sizes of the symbolic dimensions known so far; new ones are entered.
        in_place: whether kernels update the storage, which therefore has to be aligned, or a result is copied to it.
        device: where it has to be.

    Raises:
        BindError: MC-BIND-007 (type, shape, layout, alignment) or MC-BIND-002 (read-only); if it is not updated in
            place, MC-BIND-013.
    """

    def refuse(problem: str, requirement: Req = Req.MC_BIND_007, hint: str = "", **values: object) -> BindError:
        requirement = requirement if in_place else Req.MC_BIND_013
        return BindError(f"storage of {name!r}: {problem}", requirement=requirement, hint=hint, value=name, **values)

    try:
        storage = storage_of(array)
    except TypeError as error:
        hint = "allocate an array of the declared type and shape; nothing is ever staged through a copy"
        raise refuse(str(error), hint=hint) from None
    if storage.device != device:
        raise refuse(
            f"it is on {storage.device}, the session needs it on {device}",
            hint="allocate it on that device; nothing is ever staged through a copy",
            got=storage.device,
        )
    dtype = dtype_of(declared.elem_type)
    if storage.dtype != dtype:
        raise refuse(
            f"declared element type {dtype}, got {storage.dtype}",
            hint="allocate the array with the declared element type",
            declared=dtype,
            got=storage.dtype,
        )
    if problem := match_dims(declared.dims, storage.shape, symbols):
        raise refuse(problem, hint="allocate the array with the declared shape", got=storage.shape)
    if not storage.contiguous:
        raise refuse(
            f"not contiguous row-major: strides {storage.strides} of shape {show_dims(storage.shape)}",
            hint="bind the whole array, not a slice or a transposition of it",
            strides=storage.strides,
        )
    if in_place and storage.nbytes and storage.address % dtype.alignment:
        raise refuse(
            f"address {storage.address:#x} is not a multiple of {dtype.alignment}, the alignment of {dtype}",
            hint="start the array at an aligned byte of its buffer",
            address=storage.address,
            alignment=dtype.alignment,
        )
    if not storage.writable or not is_mapped_writable(storage.byte_range):
        reason = "the array is read-only" if not storage.writable else f"{storage.byte_range} are mapped read-only"
        raise refuse(reason, Req.MC_BIND_002, "bind storage that you own and may write to")
    return storage

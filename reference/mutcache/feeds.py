"""Ordinary inputs of a run: what a caller may supply, checked against the model's declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import onnx

from mutcache.backend import Backend
from mutcache.errors import BindError, RunError
from mutcache.lent_table import LentTable
from mutcache.model import Dim, SequenceType, TensorType, Value, page_type
from mutcache.page_types import Declarations
from mutcache.paging import Page, PageTable, table_problem
from mutcache.requirements import Req
from mutcache.storage import (
    Array,
    DeviceArray,
    dtype_of,
    is_dense,
    is_device_array,
    match_dims,
    owner_of,
    show_dims,
    storage_of,
)

_STRING: Final = onnx.TensorProto.STRING


class Input:
    """One ordinary graph input.

    Args:
        value: its declaration.
        optional: whether an initializer provides a default.
        requirement: what another element type or rank violates: of an operand of an update, MC-SHAPE-006.
        names: the declarations of all names of a container of quantized tensors.
        declarations: those of the model, for such containers.
        backend: that of the session: tensors may be on its device.

    Attributes:
        name: its name.
        is_tensor: whether it is a tensor; sequences, maps and optional values are containers of tensors.
        dtype: the declared element type of a tensor.
        dims: the declared dimensions of a tensor, None when unknown.
        optional: whether an initializer provides a default.
        requirement: what another element type or rank violates, if anything.
    """

    __slots__ = (
        "_backend",
        "_declarations",
        "_is_string",
        "_names",
        "_type",
        "_value",
        "dims",
        "dtype",
        "is_tensor",
        "name",
        "optional",
        "requirement",
    )

    def __init__(
        self,
        value: Value,
        *,
        optional: bool = False,
        requirement: Req | None = None,
        names: Sequence[Value] = (),
        declarations: Declarations = (),
        backend: Backend | None = None,
    ) -> None:
        self._backend = backend
        self.name = value.name
        self.optional = optional
        self.requirement = requirement
        self._value = value
        self._type = value.type
        self._names = (value, *names)
        self._declarations = declarations
        tensor = value.type if isinstance(value.type, TensorType) else None
        self.is_tensor = tensor is not None
        self.dtype = dtype_of(tensor.elem_type) if tensor else np.dtype(object)
        pages = page_type(value.type)
        self.dims: tuple[Dim, ...] | None = tensor.dims if tensor else pages.dims if pages else None
        self._is_string = tensor is not None and tensor.elem_type == _STRING

    def coerce(self, value: object) -> Any:
        """What the kernels get for ``value``; a plain number becomes a scalar of the declared type if that is exact.

        Raises:
            RunError: ``value`` is not what the model declares.
        """
        if not self.is_tensor:
            return self._coerce_container(value)
        if isinstance(value, np.ndarray):
            array = np.asarray(value)
            if array.dtype == self.dtype:
                return array
            if self._is_string and array.dtype.kind in "UT":
                return array.astype(object)
            raise self._refuse(f"declared element type {self.dtype}, got {array.dtype}", "convert it")
        if isinstance(value, (bool, int, float, complex, str, np.generic)) and not self.dims:
            return self._coerce_scalar(value)
        if is_device_array(value):
            return self._coerce_device_array(value)
        raise self._refuse(
            f"declared {self.dtype}{'' if self.dims is None else show_dims(self.dims)}, got {type(value).__name__}",
            "pass a numpy.ndarray",
        )

    def _coerce_device_array(self, value: object) -> Any:
        view = self._readable(value)
        storage = storage_of(view)
        if storage.dtype != self.dtype:
            raise self._refuse(f"declared element type {self.dtype}, got {storage.dtype}", "convert it")
        if not is_dense(storage):
            raise self._refuse(
                f"at {storage.address:#x} with strides {storage.strides} of shape {show_dims(storage.shape)}: not "
                f"contiguous, or not aligned to {storage.dtype.alignment}",
                "kernels read device arrays where they are: make a contiguous copy",
            )
        return view

    def _adopt(self, array: Any) -> Any:
        """An array of the backend's device as the backend has it, any other as it is."""
        backend = self._backend
        if backend is None or not is_device_array(array) or storage_of(array).device != backend.device:
            return array
        return backend.adopt(array)

    def _readable(self, array: object, where: str = "") -> Any:
        """An array as the backend has it, if the session can read it."""
        try:
            view = self._adopt(array)
            storage = storage_of(view)
        except TypeError as error:
            raise self._refuse(f"{where}{error}", "pass a numpy.ndarray") from None
        devices = ["cpu"] if self._backend is None else ["cpu", self._backend.device]
        if storage.device not in devices:
            raise self._refuse(
                f"{where}it is on {storage.device}, the session reads arrays on {' and '.join(devices)}",
                "copy it there first: nothing is moved between devices silently",
                Req.MC_BIND_007,
            )
        return view

    def _coerce_scalar(self, value: object) -> Array:
        scalar = value.item() if isinstance(value, np.generic) else value
        try:
            if type(scalar) is int and self.dtype.kind in "iu":
                return np.array(scalar, self.dtype)  # exact, or an OverflowError
            if isinstance(scalar, bool) == (self.dtype.kind == "b") and isinstance(scalar, str) == self._is_string:
                with np.errstate(all="ignore"):
                    array = np.array(scalar, self.dtype)
                if array.item() == scalar or scalar != scalar:  # a NaN differs from itself
                    return array
        except (OverflowError, TypeError, ValueError):
            pass  # out of range, or no number of this kind
        raise self._refuse(f"{value!r} is no value of {self.dtype}", "pass a numpy array or scalar of that type")

    def _coerce_container(self, value: object) -> Any:
        if page_type(self._type) is not None:
            return self._coerce_pages(value)
        if isinstance(self._type, SequenceType):
            if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
                raise self._refuse(f"declared a sequence, got {type(value).__name__}", "pass a list of arrays")
            element = Input(Value(f"{self.name}[...]", self._type.element), backend=self._backend)
            return [element.coerce(item) for item in value]
        for array in arrays_in(value):
            self._readable(array)
        return self._adopt(value)  # maps and optional values are judged by the kernels that take them

    def _coerce_pages(self, value: object) -> PageTable:
        try:
            table = PageTable.of(value, self._value, self._declarations)
            for page_id, page in table.items():
                self._readable(page.payload, f"page {page_id}: ")
        except BindError as error:
            raise RunError(error.message, requirement=error.requirement, hint=error.hint, input=self.name) from None
        if isinstance(value, PageTable) and value.declarations != self._declarations:
            raise self._refuse("the table is made for a model with other quantizations", "make one for this model")
        if (problem := table_problem(table, self._names, is_written=False)) is not None:
            raise RunError(problem.message, requirement=problem.requirement, hint=problem.hint, input=self.name)
        return table if self._backend is None else table.adopted(self._adopt)

    def _refuse(self, problem: str, hint: str, requirement: Req | None = None) -> RunError:
        requirement = requirement or self.requirement
        return RunError(f"input {self.name!r}: {problem}", requirement=requirement, hint=hint, input=self.name)


class Feeds:
    """Reads the feeds of one binding, run after run.

    Args:
        inputs: the ordinary inputs.
        symbols: sizes of the symbolic dimensions that the bound storage fixes.
        mutable: arrays of the mutable inputs, by name.
        tables: page tables of the mutable inputs, by name.
        buffers: storage that takes outputs, by name. Like mutable storage it is written to, so no feed may overlap it.
        protect: inputs that kernels get as read-only views, since they are not ours to change.

    Attributes:
        symbols: sizes of symbolic dimensions: what the bound storage fixes, and once feeds were read, what they do.
    """

    def __init__(
        self,
        inputs: Iterable[Input],
        symbols: Mapping[str, int],
        mutable: Mapping[str, Array | DeviceArray],
        tables: Mapping[str, LentTable],
        buffers: Mapping[str, Array | DeviceArray],
        protect: frozenset[str],
    ) -> None:
        inputs = tuple(inputs)
        self._mutable = frozenset((*mutable, *tables))
        self._names = frozenset(declared.name for declared in inputs)
        self._count = len(inputs)
        self._tensors = tuple(
            (declared.name, declared.dtype, declared.name in protect, declared)
            for declared in inputs
            if declared.is_tensor
        )
        self._containers = tuple(declared for declared in inputs if not declared.is_tensor)
        self._symbols = dict(symbols)
        self.symbols: Mapping[str, int] = self._symbols
        self._tables = tuple(tables.items())
        self._written = (*mutable.items(), *buffers.items())
        self._on_host = tuple(entry for entry in self._written if isinstance(entry[1], np.ndarray))
        # An array that owns its memory overlaps only itself and its views, so that most feeds need no comparison
        # with what is written, provided that all of that is memory of arrays too.
        owners = [owner_of(array) for _, array in self._on_host]
        self._owners = None if any(owner is None for owner in owners) else frozenset(map(id, owners))
        # The shapes of the last feeds that were found right: they seldom change.
        self._shapes: list[tuple[int, ...] | None] | None = None

    def read(self, feeds: Mapping[str, object], values: dict[str, Any]) -> None:
        """Enter the feeds into ``values``.

        Raises:
            RunError: an input is missing, unknown, or not what the model declares (MC-SHAPE-003 when a dimension has
                another size, MC-SHAPE-006 when an operand of a CacheUpdate has another element type or rank);
                MC-BIND-001: it is a mutable one; MC-BIND-004: it overlaps what the run writes to.
        """
        shapes: list[tuple[int, ...] | None] = []
        owners = self._owners
        absent = 0
        for name, dtype, protect, declared in self._tensors:
            array: Any = feeds.get(name)
            if type(array) is not np.ndarray or (array.dtype is not dtype and array.dtype != dtype):
                if name not in feeds:
                    self._require_optional(declared)
                    shapes.append(None)
                    absent += 1
                    continue
                array = declared.coerce(array)
                if not isinstance(array, np.ndarray):  # it is on the device
                    self._refuse_overlap(name, array)
                    values[name] = array
                    shapes.append(array.shape)
                    continue
            if owners is None or not array.flags.owndata or id(array) in owners:
                self._refuse_overlap_on_host(name, array)
            for target, table in self._tables:
                if not table.is_apart(array):
                    self._refuse_overlap_with_pages(name, array, target, table)
            values[name] = read_only(array) if protect else array
            shapes.append(array.shape)
        if self._containers:
            absent += self._read_containers(feeds, values, shapes)
        if len(feeds) + absent != self._count:
            self._refuse_unknown(feeds)
        if shapes != self._shapes:
            self._match(shapes)
            self._shapes = shapes

    def _read_containers(
        self, feeds: Mapping[str, object], values: dict[str, Any], shapes: list[tuple[int, ...] | None]
    ) -> int:
        """Enter sequences, maps and optional values, and the shape of pages; returns how many are absent."""
        absent = 0
        for declared in self._containers:
            if declared.name in feeds:
                values[declared.name] = value = declared.coerce(feeds[declared.name])
                for array in arrays_in(value):
                    self._refuse_overlap(declared.name, array)
                first = next(iter(value.values()), None) if isinstance(value, PageTable) else None
                shapes.append(None if first is None else first.dims)
            else:
                self._require_optional(declared)
                shapes.append(None)
                absent += 1
        return absent

    def _match(self, shapes: Sequence[tuple[int, ...] | None]) -> None:
        symbols = dict(self._symbols)
        declarations = (*(declared for *_, declared in self._tensors), *self._containers)
        for declared, shape in zip(declarations, shapes, strict=True):
            if shape is not None and (problem := match_dims(declared.dims, shape, symbols)):
                is_rank = declared.dims is not None and len(declared.dims) != len(shape)
                raise RunError(
                    f"input {declared.name!r}: {problem}",
                    requirement=declared.requirement if is_rank else Req.MC_SHAPE_003,
                    hint="one symbol has one size in all inputs of a run and its binding",
                    input=declared.name,
                    shape=shape,
                )
        self.symbols = symbols

    def _require_optional(self, declared: Input) -> None:
        if not declared.optional:
            raise RunError(
                f"input {declared.name!r} is missing",
                hint=f"the run needs {', '.join(sorted(self._names))}",
                input=declared.name,
            )

    def _refuse_unknown(self, feeds: Mapping[str, object]) -> None:
        if mutable := [name for name in feeds if name in self._mutable]:
            raise RunError(
                f"{mutable[0]!r} is a mutable input and cannot be supplied as an ordinary value",
                requirement=Req.MC_BIND_001,
                hint="its storage is the array that was bound: leave it out of the feeds",
            )
        unknown = ", ".join(sorted(repr(name) for name in feeds if name not in self._names))
        known = ", ".join(sorted(self._names)) or "none"
        raise RunError(f"no ordinary input of the model is named {unknown}", hint=f"ordinary inputs: {known}")

    def _refuse_overlap(self, name: str, array: Any) -> None:
        """Refuse an array, wherever it is, that overlaps anything that the run writes to."""
        if isinstance(array, np.ndarray):
            self._refuse_overlap_on_host(name, array)
        else:
            read = storage_of(array).byte_range
            for target, written in self._written:
                if storage_of(written).byte_range.overlaps(read):
                    _refuse_overlapping(name, array, target, written)
        for target, table in self._tables:
            self._refuse_overlap_with_pages(name, array, target, table)

    def _refuse_overlap_on_host(self, name: str, array: Array) -> None:
        for target, written in self._on_host:
            if np.may_share_memory(array, written):
                _refuse_overlapping(name, array, target, written)

    def _refuse_overlap_with_pages(self, name: str, array: Any, target: str, table: LentTable) -> None:
        page_id = table.overlapping(array)
        if page_id is not None:
            _refuse_overlapping(name, array, f"{target}[{page_id}]", table.table[page_id].payload)


def _refuse_overlapping(name: str, array: Any, target: str, written: Any) -> NoReturn:
    raise RunError(
        f"input {name!r} ({storage_of(array).byte_range}) overlaps {target!r} ({storage_of(written).byte_range}), "
        "which the run writes to",
        requirement=Req.MC_BIND_004,
        hint="copy the input out of that storage first",
        input=name,
        overlaps=target,
    )


def arrays_in(value: object) -> Iterator[Any]:
    """The arrays of a tensor, a sequence, a map or an optional value, on whatever device; of pages, the payloads."""
    if isinstance(value, np.ndarray) or is_device_array(value):
        yield value
    elif isinstance(value, Page):
        yield value.payload
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from arrays_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays_in(item)


def read_only(array: Array) -> Array:
    """A view of ``array`` that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view

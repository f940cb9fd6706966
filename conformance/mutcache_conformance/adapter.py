"""What a Python adapter implements, and what it gets: the harness speaks to it only through these classes.

An adapter translates. It performs no check on the runtime's behalf that it does not declare in ``describe``, and turns
the runtime's deliberate refusals into ``Rejected``; any other exception counts as a failure of the runtime.
"""

from __future__ import annotations

import ctypes
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np

from mutcache_conformance.dtypes import dtype_of, number_of
from mutcache_conformance.evidence import Basis

Array = np.ndarray[Any, np.dtype[Any]]

#: The capability of those that implement ``Adapter.device_memory``.
DEVICE_MEMORY: Final = "device-memory"
#: What an adapter lacks that implements none of the methods for page tables.
_TABLES: Final = "page tables"
#: The memory of the process itself, and devices, as the protocol's schema has them.
_CPU: Final = "cpu"
_DEVICE: Final = re.compile(r"(?!cpu:)[a-z][a-z0-9_-]*:(0|[1-9][0-9]*)")


class Rejected(Exception):  # noqa: N818 - a refusal is an outcome, not a fault
    """The runtime refuses on purpose.

    Args:
        phase: ``load`` (or the finer ``decode``, ``check``, ``plan``), ``bind`` or ``run``.
        requirement: the ID of the violated requirement, or None.
        message: the runtime's own words.
    """

    def __init__(self, phase: str, requirement: str | None, message: str) -> None:
        super().__init__(message)
        self.phase = phase
        self.requirement = requirement
        self.message = message


class Unsupported(Exception):  # noqa: N818 - an outcome, not a fault
    """The runtime lacks ``what``: a type, an operator, a mode."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class NotApplicable(Unsupported):
    """The runtime's interface has no means to express ``what``."""


@dataclass(frozen=True, slots=True)
class Description:
    """Who is under test.

    Attributes:
        runtime: name of the runtime.
        runtime_version: its version.
        adapter: name of the adapter.
        adapter_version: its version.
        capabilities: what it has beyond the required, for example ``dtype:DOUBLE``.
        alignment: bytes, a power of two up to 256, that it needs storage to be aligned to.
        concurrent_runs: whether several runs can be in flight at once; the host then calls ``run`` from threads.
        checks: the requirements, or other words, for checks that the adapter performs because the runtime does not.
        device: where the runtime keeps caches while they are bound: ``cpu``, the storage that it is lent, or an address
            space that the adapter carries them to and from, as ``cuda:0``. What they hold there is known from the
            adapter alone, and evidence of it is its report.

    Raises:
        ValueError: there can be no such device.
    """

    runtime: str
    runtime_version: str
    adapter: str
    adapter_version: str
    capabilities: frozenset[str] = frozenset()
    alignment: int = 64
    concurrent_runs: bool = False
    checks: tuple[str, ...] = ()
    device: str = _CPU

    def __post_init__(self) -> None:
        if self.device != _CPU and not _DEVICE.fullmatch(self.device):
            raise ValueError(f"device {self.device!r} is neither 'cpu' nor NAME:NUMBER, as 'cuda:0'")

    @property
    def is_on_device(self) -> bool:
        """Whether caches are in memory that nobody but the runtime can look into."""
        return self.device != _CPU

    @property
    def basis(self) -> Basis:
        """Who sees what caches hold."""
        return Basis.REPORTED if self.is_on_device else Basis.OBSERVED

    @property
    def tells_memory(self) -> bool:
        """Whether what it takes of memory can be known: of a device's only what the adapter reports."""
        return not self.is_on_device or DEVICE_MEMORY in self.capabilities

    def to_json(self) -> dict[str, Any]:
        """The description as it stands in report.json."""
        return {**asdict(self), "capabilities": sorted(self.capabilities), "checks": list(self.checks)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The description that ``to_json`` wrote."""
        return cls(**{**data, "capabilities": frozenset(data["capabilities"]), "checks": tuple(data["checks"])})


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a runtime holds of a device's memory, in bytes; never what stands there for storage that it is lent.

    Attributes:
        allocated: what it holds now.
        peak: the most that it held at once since this was last counted anew.
    """

    allocated: int
    peak: int


@dataclass(frozen=True, slots=True)
class HostStorage:
    """Caller's storage, mapped. Outside it lie guard bytes, and unmapped pages beyond them.

    Attributes:
        name: the value that it is for.
        address: address of the first element.
        nbytes: bytes from the first to the last element, gaps included.
        dtype: TensorProto.DataType number.
        shape: the dimensions.
        strides: bytes per step of each dimension.
        device: ``cpu``.
        alignment: bytes that the caller aligned it to (it may lie about that, to see what happens).
        writable: False says that it must not be modified; its memory may be mapped read-only then.
        origin: ``caller``, or ``initializer:NAME``.
    """

    name: str
    address: int
    nbytes: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str = "cpu"
    alignment: int = 1
    writable: bool = True
    origin: str = "caller"

    def array(self) -> Array:
        """The elements as a NumPy view, read-only if the storage is."""
        buffer = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        array: Array = np.ndarray(self.shape, dtype_of(self.dtype), buffer, 0, self.strides)  # type: ignore[arg-type]  # any buffer will do
        array.flags.writeable = self.writable
        return array


@dataclass(frozen=True, slots=True)
class HostPage:
    """A page of a caller's table.

    Attributes:
        quantized_type: index of its declaration in ``ModelProto.quantizations``.
        dims: its logical dimensions.
        nbytes: the ``n_bytes`` that the caller declares (he may be wrong about that, to see what happens).
        payload: its bytes, as UINT8 elements.
        key: its key in a map; None in a sequence.
    """

    quantized_type: int
    dims: tuple[int, ...]
    nbytes: int
    payload: HostStorage
    key: int | None = None


@dataclass(frozen=True, slots=True)
class HostPageTable:
    """A caller's page table.

    Attributes:
        name: the value that it is for.
        container: ``sequence`` or ``map``.
        pages: its pages; those of a sequence in order.
        budget: bytes that the runtime may allocate for pages as long as it holds the table, those that it gives up
            again included: an allocation beyond that is to fail. None is no limit.
    """

    name: str
    container: str
    pages: tuple[HostPage, ...]
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class OutputValue:
    """An output of a run, as the runtime has it.

    Attributes:
        dtype: TensorProto.DataType number.
        shape: the dimensions.
        nbytes: bytes of the elements in row-major order.
        address: address of the first element, or None where the interface shows none. Of a cache that is carried to a
            device it is that of the storage that it stands for.
        read: gives ``nbytes`` bytes from a byte offset of the elements in row-major order, as the output holds them
            at the time of the call; never a copy made earlier.
    """

    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    address: int | None
    read: Callable[[int, int], bytes] = field(repr=False)

    @classmethod
    def of(cls, value: Array | np.generic) -> Self:
        """The output that a NumPy array is, or that a NumPy scalar holds."""
        array = np.asarray(value)

        def read(offset: int, nbytes: int) -> bytes:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            return flat[offset : offset + nbytes].tobytes()

        return cls(number_of(array.dtype), array.shape, array.nbytes, array.ctypes.data, read)


@dataclass(frozen=True, slots=True)
class OutputPage:
    """A page of a table, as the runtime has it.

    Attributes:
        quantized_type: index of its declaration in ``ModelProto.quantizations``.
        dims: its logical dimensions.
        nbytes: bytes of its payload.
        address: address of its payload in this process, or None where the interface shows none. Of a payload that is
            carried to a device it is that of the storage that it stands for, of one that the runtime made there an
            address of the device's, or None.
        read: gives ``nbytes`` bytes from a byte offset of the payload, as it is at the time of the call.
        key: its key in a map; None in a sequence.
    """

    quantized_type: int
    dims: tuple[int, ...]
    nbytes: int
    address: int | None
    read: Callable[[int, int], bytes] = field(repr=False)
    key: int | None = None


@dataclass(frozen=True, slots=True)
class OutputTable:
    """A page table, as the runtime has it. The pages of a sequence are in order."""

    container: str
    pages: tuple[OutputPage, ...]


Outputs = Mapping[str, OutputValue | OutputTable]


class AdapterBinding(ABC):
    """Storage bound to a session's mutable inputs until it is released."""

    @abstractmethod
    def run(self, feeds: Mapping[str, HostStorage]) -> Outputs:
        """Run the session on this binding; ``feeds`` has the other inputs. Returns every graph output by name."""

    def run_tables(self, feeds: Mapping[str, HostStorage], tables: Mapping[str, HostPageTable]) -> Outputs:
        """Run the session on this binding, where some of the other inputs are page tables."""
        if tables:
            raise Unsupported(_TABLES)
        return self.run(feeds)

    def tables(self) -> Mapping[str, OutputTable]:
        """The page tables that are bound, by the name of the input, as they are now."""
        raise Unsupported(_TABLES)

    @abstractmethod
    def release(self) -> None:
        """End the binding and its lease."""


class AdapterSession(ABC):
    """A loaded model."""

    @abstractmethod
    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        """Bind storage to the mutable inputs, and to those outputs that the caller provides storage for."""

    def bind_tables(
        self,
        mutable: Mapping[str, HostStorage],
        outputs: Mapping[str, HostStorage],
        tables: Mapping[str, HostPageTable],
    ) -> AdapterBinding:
        """Bind page tables to mutable inputs, and storage as ``bind`` does. Payloads are updated in place."""
        if tables:
            raise Unsupported(_TABLES)
        return self.bind(mutable, outputs)

    @abstractmethod
    def run(self, feeds: Mapping[str, HostStorage]) -> Outputs:
        """Run without a binding: every input is an ordinary one. Returns every graph output by name."""

    def run_tables(self, feeds: Mapping[str, HostStorage], tables: Mapping[str, HostPageTable]) -> Outputs:
        """Run without a binding, where some inputs are page tables."""
        if tables:
            raise Unsupported(_TABLES)
        return self.run(feeds)

    @abstractmethod
    def unload(self) -> None:
        """End the session. Storage is unmapped after it, so nothing may hold on to it."""


class Adapter(ABC):
    """A runtime under test.

    Args:
        options: what ``--runtime-option KEY=VALUE`` said.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    @abstractmethod
    def describe(self) -> Description:
        """Who is under test, and what it can do."""

    @abstractmethod
    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Load a serialized model. ``initializers`` has caller's storage for some of its initializers."""

    def device_memory(self, *, reset: bool) -> DeviceMemory:  # noqa: ARG002 - for those that can tell
        """What the runtime holds of the memory of its device.

        Args:
            reset: count the peak anew from here on; what is returned still has the one until here.

        Raises:
            Unsupported: it cannot tell; then ``device-memory`` is not among its capabilities.
        """
        raise Unsupported("figures of the device's memory")

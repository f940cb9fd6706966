"""ONNX Runtime: models as they are, through I/O binding.

Memory of the caller is bound to mutable inputs, and to the outputs that are their storage, as one ``OrtValue`` each, as
ONNX Runtime GenAI does it. The interface takes NumPy arrays; what it makes of one that is not contiguous, or that is
read-only, is its affair.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, Final

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    Description,
    HostStorage,
    OutputValue,
    Rejected,
    Unsupported,
)
from mutcache_conformance.adapters.lowering import Prepared, as_it_is

#: What ONNX Runtime raises on purpose. Its bindings raise RuntimeError and ValueError for arguments that they refuse.
_REFUSALS: Final = (
    errors.EPFail,
    errors.Fail,
    errors.InvalidArgument,
    errors.InvalidGraph,
    errors.InvalidProtobuf,
    errors.NotFound,
    errors.RuntimeException,
    RuntimeError,
    ValueError,
)
#: Parts of messages by which it says that it lacks something, and finds no fault with what it was given.
_LACKS: Final = ("Unsupported model IR version", "is not a registered function/op", "can't be converted to MLDataType")
_LEVELS: Final = {
    "disable": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_MODES: Final = {
    "sequential": onnxruntime.ExecutionMode.ORT_SEQUENTIAL,
    "parallel": onnxruntime.ExecutionMode.ORT_PARALLEL,
}
#: Element types of caches beyond the core that its bindings have; which kernels exist, each case shows.
_TYPES: Final = ("UINT16", "INT16", "DOUBLE", "UINT32", "UINT64")


@contextlib.contextmanager
def refusals(phase: str) -> Iterator[None]:
    """Turn ONNX Runtime's deliberate errors into refusals in ``phase``, and lacks into Unsupported."""
    try:
        yield
    except errors.NotImplemented as error:
        raise Unsupported(str(error)) from error
    except _REFUSALS as error:
        if any(lack in str(error) for lack in _LACKS):
            raise Unsupported(str(error)) from error
        raise Rejected(phase, None, str(error)) from error


def value_of(storage: HostStorage) -> Any:
    """The caller's memory as an ``OrtValue``."""
    array = storage.array()
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, storage.dtype)


def output_of(value: Any) -> OutputValue:
    """An output as the ``OrtValue`` that holds it."""
    address, nbytes = value.data_ptr(), value.tensor_size_in_bytes()

    def read(offset: int, count: int) -> bytes:
        return ctypes.string_at(value.data_ptr() + offset, max(0, min(count, nbytes - offset)))

    return OutputValue(value.element_type(), tuple(value.shape()), nbytes, address, read)


class OnnxRuntimeBinding(AdapterBinding):
    """Values bound to the inputs and outputs of a session. ONNX Runtime has no lease: releasing drops the values."""

    def __init__(self, session: Any, prepared: Prepared, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self._session = session
        self._prepared = prepared
        self._inputs = dict(inputs)
        self._outputs = dict(outputs)

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """Run with the bound values and the feeds; outputs that nothing is bound to, ONNX Runtime allocates."""
        with refusals("run"):
            binding = self._session.io_binding()
            for name, value in (*self._inputs.items(), *((name, value_of(feed)) for name, feed in feeds.items())):
                binding.bind_ortvalue_input(name, value)
            for name in self._prepared.outputs:
                if name in self._outputs:
                    binding.bind_ortvalue_output(name, self._outputs[name])
                else:
                    binding.bind_output(name, "cpu")
            self._session.run_with_iobinding(binding)
            values = dict(zip(self._prepared.outputs, binding.get_outputs(), strict=True))
            return {name: output_of(value) for name, value in values.items()}

    def release(self) -> None:
        """Drop the values."""
        self._inputs.clear()
        self._outputs.clear()


class OnnxRuntimeSession(AdapterSession):
    """An ``InferenceSession``."""

    def __init__(self, session: Any, prepared: Prepared, kept: tuple[Any, ...]) -> None:
        self._session = session
        self._prepared = prepared
        self._kept = kept

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        """Bind one value to each mutable input and to the outputs that are its storage."""
        with refusals("bind"):
            inputs = {name: value_of(storage) for name, storage in mutable.items()}
            bound = {name: inputs[root] for name, root in self._prepared.storage.items() if root in inputs}
            bound |= {name: value_of(storage) for name, storage in outputs.items()}
            return OnnxRuntimeBinding(self._session, self._prepared, inputs, bound)

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """Run with ordinary values, new memory for every output."""
        return OnnxRuntimeBinding(self._session, self._prepared, {}, {}).run(feeds)

    def unload(self) -> None:
        """Drop the session and the initializers."""
        self._session = None
        self._kept = ()


class OnnxRuntimeAdapter(Adapter):
    """ONNX Runtime on CPU.

    Args:
        options: ``graph_optimization`` (disable, basic, extended or all), ``execution_mode`` (sequential or parallel),
            ``threads`` (within an operator; 0 lets ONNX Runtime choose). What is not given is ONNX Runtime's default.

    Raises:
        ValueError: there is no such option, or no such value of it.
    """

    name = "onnxruntime"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        if unknown := sorted(options.keys() - {"graph_optimization", "execution_mode", "threads"}):
            raise ValueError(
                f"{self.name} has no option {unknown[0]!r}: it has graph_optimization, execution_mode and threads"
            )
        if (level := options.get("graph_optimization", "all")) not in _LEVELS:
            raise ValueError(f"graph_optimization {level!r} is none of {', '.join(_LEVELS)}")
        if (mode := options.get("execution_mode", "sequential")) not in _MODES:
            raise ValueError(f"execution_mode {mode!r} is none of {', '.join(_MODES)}")
        self._level, self._mode, self._threads = _LEVELS[level], _MODES[mode], int(options.get("threads", "0"))

    def describe(self) -> Description:
        """The installed version."""
        return Description(
            runtime="ONNX Runtime",
            runtime_version=onnxruntime.__version__,
            adapter=self.name,
            adapter_version="1",
            capabilities=frozenset(f"dtype:{name}" for name in _TYPES),
            concurrent_runs=True,
            checks=self.checks,
        )

    #: What the adapter checks in ONNX Runtime's stead.
    checks: tuple[str, ...] = ()

    def prepare(self, model: bytes) -> Prepared:
        """What to load for ``model``. A model that is no protobuf is left to ONNX Runtime to refuse."""
        return as_it_is(model)

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Make a session; storage for initializers is added to its options, which keeps it where it is."""
        prepared = self.prepare(model)
        with refusals("load"):
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = self._level
            options.execution_mode = self._mode
            options.intra_op_num_threads = self._threads
            kept = {name: value_of(storage) for name, storage in initializers.items()}
            for name, value in kept.items():
                options.add_initializer(name, value)
            session = onnxruntime.InferenceSession(prepared.model, options, providers=["CPUExecutionProvider"])
            return OnnxRuntimeSession(session, prepared, tuple(kept.values()))

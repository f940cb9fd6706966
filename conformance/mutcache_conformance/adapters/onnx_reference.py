"""The reference evaluator of the onnx package, on lowered models.

It takes and returns NumPy arrays, and has no way to say where a result should go: each result is in new memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import onnx
from onnx.reference import ReferenceEvaluator

from mutcache_conformance.adapter import (
    Adapter,
    AdapterBinding,
    AdapterSession,
    Description,
    HostStorage,
    NotApplicable,
    OutputValue,
    Rejected,
    Unsupported,
)
from mutcache_conformance.adapters.lowering import lowered

#: What the evaluator, and NumPy for it, raises for models and operands that it does not take.
_REFUSALS = (ValueError, TypeError, IndexError, RuntimeError)


@contextlib.contextmanager
def _refusals(phase: str) -> Iterator[None]:
    try:
        yield
    except NotImplementedError as error:
        raise Unsupported(str(error)) from error
    except _REFUSALS as error:
        raise Rejected(phase, None, f"{type(error).__name__}: {error}") from error


class OnnxReferenceSession(AdapterSession):
    """A ``ReferenceEvaluator``."""

    def __init__(self, evaluator: ReferenceEvaluator) -> None:
        self._evaluator = evaluator

    def bind(self, mutable: Mapping[str, HostStorage], outputs: Mapping[str, HostStorage]) -> AdapterBinding:
        """Remember the arrays that are fed."""
        if outputs:
            raise NotApplicable("storage for outputs: the evaluator returns arrays of its own")
        return OnnxReferenceBinding(self, mutable)

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """Evaluate."""
        with _refusals("run"):
            values = self._evaluator.run(None, {name: storage.array() for name, storage in feeds.items()})
            names = self._evaluator.output_names
            return {name: OutputValue.of(value) for name, value in zip(names, values, strict=True)}

    def unload(self) -> None:
        """Nothing to do."""


class OnnxReferenceBinding(AdapterBinding):
    """Arrays that every run is fed."""

    def __init__(self, session: OnnxReferenceSession, mutable: Mapping[str, HostStorage]) -> None:
        self._session = session
        self._mutable = dict(mutable)

    def run(self, feeds: Mapping[str, HostStorage]) -> Mapping[str, OutputValue]:
        """Evaluate with the arrays and the feeds."""
        return self._session.run({**self._mutable, **feeds})

    def release(self) -> None:
        """Forget the arrays."""
        self._mutable.clear()


class OnnxReferenceAdapter(Adapter):
    """The evaluator of the installed onnx."""

    def describe(self) -> Description:
        """The installed version."""
        return Description("onnx.reference", onnx.__version__, "onnx-reference", "1")

    def load(self, model: bytes, initializers: Mapping[str, HostStorage]) -> AdapterSession:
        """Make an evaluator."""
        if initializers:
            raise NotApplicable("storage for initializers: the evaluator takes them out of the model")
        prepared = lowered(model)
        with _refusals("load"):
            return OnnxReferenceSession(ReferenceEvaluator(prepared.model))

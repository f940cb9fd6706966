"""What a run must compute, by functional semantics: every update makes a new cache, nothing is ever written in place.

Standard operators are those of ``onnx.reference``. ``CacheUpdate``, control flow and functions are written here from
the specification: slow, and without a line in common with the reference runtime. Storage identity appears only as a
label: an array is known by the mutable root it descends from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mutcache.proto import parse
from mutcache.proto.onnx_ml import ModelProto, ValueInfoProto
from mutcache_conformance.oracle_graph import Interpreter
from mutcache_conformance.oracle_update import Contents, History, OracleRefusal, cache_update

__all__ = ["Contents", "History", "OracleRefusal", "OracleResult", "cache_update", "run_model"]


@dataclass(frozen=True, slots=True, eq=False)
class OracleResult:
    """What a run must leave behind.

    Attributes:
        outputs: every graph output, by name.
        classes: for each mutable graph input its contents after 0, 1, ... updates; the last is what memory must hold.
        root_of_output: for each graph output that is a name of a mutable input's storage, the name of that input.
    """

    outputs: Mapping[str, Contents]
    classes: History
    root_of_output: Mapping[str, str]


def run_model(model: bytes, inputs: Mapping[str, Contents]) -> OracleResult:
    """Run the serialized ``model`` on ``inputs``, the mutable ones among them, which are not modified.

    Args:
        model: a model that the specification accepts.
        inputs: an array for every graph input, and optionally for initializers that the caller supplies. A mutable
            input may be an Overlay, if no node but updates reads it; its contents are Overlays then.

    Raises:
        OracleRefusal: the semantics demand that the run is refused.
    """
    proto = parse(model)
    # Copies: results must not change with the caller's memory, and one array may be given for two inputs.
    inputs = {name: array.copy() for name, array in inputs.items()}
    recorder = _Recorder.of(proto, inputs)
    try:
        results = Interpreter(proto, recorder.record).run(inputs)
    except OracleRefusal as refusal:
        raise OracleRefusal(refusal.requirement, refusal.message, recorder.classes()) from None
    outputs = {value.name: array for value, array in zip(proto.graph.output, results, strict=True)}
    classes = recorder.classes()
    declared = {value.name: value.alias_of for value in proto.graph.output}
    return OracleResult(
        outputs=outputs,
        classes=classes,
        root_of_output={
            name: root
            for name, array in outputs.items()
            # An operator may hand its operand on unchanged: that alone is no alias.
            if (declared[name] or name in classes) and (root := recorder.root_of(array))
        },
    )


class _Recorder:
    """Which arrays are contents of a mutable root, and in which order they came to be."""

    def __init__(self, mutable: Mapping[str, Contents]) -> None:
        self._history: dict[str, list[Contents]] = {root: [array] for root, array in mutable.items()}
        # An id is not reused while its array is kept, and the history keeps them all.
        self._roots: dict[int, str] = {id(array): root for root, array in mutable.items()}

    @classmethod
    def of(cls, proto: ModelProto, inputs: Mapping[str, Contents]) -> _Recorder:
        """A recorder for one run of the model."""
        mutable = [value.name for value in proto.graph.input if value.access == ValueInfoProto.READ_WRITE]
        return cls({name: inputs[name] for name in mutable})

    def root_of(self, array: Contents) -> str:
        """The root that ``array`` is a content of, or "" for a value that is no cache."""
        return self._roots.get(id(array), "")

    def record(self, old: Contents, new: Contents) -> None:
        """``new`` is what an update made of ``old``."""
        root = self._roots[id(old)]
        self._history[root].append(new)
        self._roots[id(new)] = root

    def classes(self) -> dict[str, tuple[Contents, ...]]:
        """The contents of each root after 0, 1, ... updates."""
        return {root: tuple(arrays) for root, arrays in self._history.items()}

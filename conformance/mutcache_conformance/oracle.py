"""What a run must compute, by functional semantics: every update makes a new cache, nothing is ever written in place.

Standard operators are those of ``onnx.reference``. ``CacheUpdate``, control flow and functions are written here from
the specification: slow, and without a line in common with the reference runtime. Storage identity appears only as a
label: an array is known by the mutable root it descends from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mutcache.proto import parse
from mutcache.proto.onnx_ml import ModelProto, ValueInfoProto
from mutcache_conformance.oracle_graph import Interpreter
from mutcache_conformance.oracle_pages import ContainerForm, Gathered, PageImage, Pages
from mutcache_conformance.oracle_update import Contents, History, OracleRefusal, cache_update

__all__ = ["Contents", "History", "OracleRefusal", "OracleResult", "cache_update", "run_model"]


@dataclass(frozen=True, slots=True, eq=False)
class OracleResult:
    """What a run must leave behind.

    Attributes:
        outputs: every graph output, by name.
        classes: for each mutable graph input its contents after 0, 1, ... updates; the last is what memory must hold.
        root_of_output: for each graph output that is a name of a mutable input's storage, the name of that input.
        gathered: how the outputs that were gathered of pages came to be; other decoders make other elements of these.
    """

    outputs: Mapping[str, Contents]
    classes: History
    root_of_output: Mapping[str, str]
    gathered: Mapping[str, Gathered] = field(default_factory=dict)

    @property
    def retired(self) -> dict[str, tuple[PageImage, ...]]:
        """By root, the pages whose payloads were replaced, with what these held when they were."""
        return {
            root: tuple(_retired(history)) for root, history in self.classes.items() if isinstance(history[0], Pages)
        }


def run_model(model: bytes, inputs: Mapping[str, Contents]) -> OracleResult:
    """Run the serialized ``model`` on ``inputs``, the mutable ones among them, which are not modified.

    Args:
        model: a model that the specification accepts.
        inputs: an array for every graph input, and optionally for initializers that the caller supplies. A mutable
            input may be an Overlay, if no node but updates reads it; its contents are Overlays then. Those of a
            container of pages are Pages.

    Raises:
        OracleRefusal: the semantics demand that the run is refused.
    """
    proto = parse(model)
    # Copies: results must not change with the caller's memory, and one array may be given for two inputs.
    inputs = {name: array.copy() for name, array in inputs.items()} | _containers(proto, inputs)
    recorder = _Recorder.of(proto, inputs)
    interpreter = Interpreter(proto, recorder.record)
    try:
        results = interpreter.run(inputs)
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
        gathered={
            name: interpreter.gathered[id(array)]
            for name, array in outputs.items()
            if id(array) in interpreter.gathered
        },
    )


def _containers(proto: ModelProto, inputs: Mapping[str, Contents]) -> dict[str, Pages]:
    """The containers among the inputs, at the beginning of the run."""
    forms = {value.name: ContainerForm.of(proto, value.type) for value in proto.graph.input}
    return {name: inputs[name].begin(form) for name, form in forms.items() if form is not None}


def _retired(history: Sequence[Pages]) -> Iterator[PageImage]:
    last = {page.identity for page in history[-1].pages}
    images = {page.identity: page for contents in history for page in contents.pages}
    yield from (page for identity, page in sorted(images.items()) if identity >= 0 and identity not in last)


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

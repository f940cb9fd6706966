"""What a run must compute, by functional semantics: every update makes a new cache, nothing is ever written in place.

Standard operators are those of ``onnx.reference``. ``CacheUpdate`` is written here from the specification, one element
after the other, on bytes and on Python's unbounded integers: slow, and without a line in common with the reference
runtime. Storage identity appears only as a label: an array is known by the mutable root it descends from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from mutcache.model import DOMAIN
from mutcache.proto import BASE_IR_VERSION, parse
from mutcache.proto.onnx_ml import ModelProto, NodeProto, ValueAliasProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.overlay import Overlay

Array = np.ndarray[Any, np.dtype[Any]]
#: What a value holds. A cache too large to hold is known by what is written to it.
Contents = Array | Overlay
History = Mapping[str, tuple[Contents, ...]]


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


class OracleRefusal(Exception):  # noqa: N818 - a refusal is an outcome that the specification demands, not a fault
    """The run must be refused.

    Attributes:
        requirement: the requirement that the first failing update, in node order, would break.
        classes: as in OracleResult, up to the update that fails. An update of another storage that does not depend on
            the failing one may have been made before it or not at all, so memory may hold any entry of each history.
    """

    def __init__(self, requirement: Req, message: str, classes: History | None = None) -> None:
        super().__init__(f"{requirement.value}: {message}")
        self.requirement = requirement
        self.message = message
        self.classes: History = classes or {}


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
        outputs = _evaluate(proto, inputs, recorder)
    except OracleRefusal as refusal:
        raise OracleRefusal(refusal.requirement, refusal.message, _reachable(proto, inputs)) from None
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


def cache_update(
    cache: Array, values: Array, position: Array, *, axis: int = -2, mode: str = "linear", batch_axis: int | None = None
) -> Array:
    """A copy of ``cache`` with ``values`` written at ``position`` along ``axis``.

    Args:
        cache: any shape of rank >= 1; ``cache.shape[axis]`` is the capacity.
        values: of the dtype and shape of ``cache``, but for ``values.shape[axis]``, the length.
        position: INT64, of shape ``()``; with ``batch_axis`` of shape ``[cache.shape[batch_axis]]``.
        axis: where the rows lie, negative from the end.
        mode: ``linear``, or ``circular``: row indices are taken modulo the capacity.
        batch_axis: the axis whose entries each have their own position.

    Raises:
        OracleRefusal: an operand does not fit, the position is negative, or the rows do not fit in the capacity.
    """
    target = bytearray(cache.tobytes())
    for at, element in _written(cache, values, position, axis, mode, batch_axis).items():
        target[at : at + len(element)] = element
    return np.frombuffer(bytes(target), cache.dtype).reshape(cache.shape)


def _written(
    cache: Contents,
    values: Array,
    position: Array,
    axis: int = -2,
    mode: str = "linear",
    batch_axis: int | None = None,
) -> dict[int, bytes]:
    """The elements that an update writes, by their byte offset in row-major order; raises as ``cache_update`` does."""
    axis, batch_axis = _check_operands(cache, values, position, axis, batch_axis)
    capacity, length = cache.shape[axis], values.shape[axis]
    starts = [int(start) for start in position.reshape(-1)]
    for start in starts:
        _check_range(start, length, capacity, mode)

    size, source = cache.dtype.itemsize, values.tobytes()
    written: dict[int, bytes] = {}
    for number, index in enumerate(np.ndindex(*values.shape)):
        start = starts[0] if batch_axis is None else starts[index[batch_axis]]
        row = start + index[axis]
        place = [*index[:axis], row % capacity if mode == "circular" else row, *index[axis + 1 :]]
        written[_offset(place, cache.shape) * size] = source[number * size : (number + 1) * size]
    return written


def _check_operands(
    cache: Contents, values: Array, position: Array, axis: int, batch_axis: int | None
) -> tuple[int, int | None]:
    """The axes counted from the front.

    Raises:
        OracleRefusal: MC-SHAPE-006 or MC-SHAPE-001.
    """

    def refuse_unless(condition: bool, message: str, requirement: Req = Req.MC_SHAPE_006) -> None:
        if not condition:
            raise OracleRefusal(requirement, message)

    rank = cache.ndim
    refuse_unless(values.dtype == cache.dtype, f"{values.dtype} values, {cache.dtype} cache", Req.MC_SHAPE_006)
    refuse_unless(rank >= 1, "a cache of rank 0")
    refuse_unless(values.ndim == rank, f"values of rank {values.ndim}, cache of rank {rank}")
    refuse_unless(-rank <= axis < rank, f"axis {axis}, rank {rank}")
    axis %= rank
    unlike = [n for n in range(rank) if n != axis and values.shape[n] != cache.shape[n]]
    refuse_unless(not unlike, f"values {values.shape}, cache {cache.shape}, update along axis {axis}")
    refuse_unless(position.dtype == np.int64, f"position of type {position.dtype}")
    if batch_axis is None:
        refuse_unless(position.shape == (), f"position of shape {position.shape} without batch_axis")
    else:
        refuse_unless(-rank <= batch_axis < rank, f"batch_axis {batch_axis}, rank {rank}")
        batch_axis %= rank
        refuse_unless(batch_axis != axis, f"batch_axis and axis are both {axis}")
        batch = cache.shape[batch_axis]
        refuse_unless(position.shape == (batch,), f"position of shape {position.shape}, batch {batch}")
    return axis, batch_axis


def _check_range(start: int, length: int, capacity: int, mode: str) -> None:
    if start < 0:
        raise OracleRefusal(Req.MC_DENSE_004, f"position {start} is negative")
    if mode == "circular":
        if length > capacity:
            raise OracleRefusal(Req.MC_DENSE_003, f"length {length} > capacity {capacity}")
    elif start + length > capacity:
        raise OracleRefusal(Req.MC_DENSE_003, f"position {start} + length {length} > capacity {capacity}")


def _offset(index: Sequence[int], shape: Sequence[int]) -> int:
    """The place of an element in row-major order."""
    return sum(i * math.prod(shape[axis + 1 :]) for axis, i in enumerate(index))


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


def _evaluate(proto: ModelProto, inputs: Mapping[str, Contents], recorder: _Recorder) -> dict[str, Contents]:
    """All outputs of the graph.

    Raises:
        OracleRefusal: an update fails; the recorder holds those before it.
    """

    class CacheUpdate(OpRun):
        op_domain = DOMAIN
        op_schema = None  # the defaults are those above, whether or not a schema is registered

        def _run(self, cache: Contents, values: Array, position: Array, **attributes: Any) -> tuple[Contents]:
            updated: Contents
            if isinstance(cache, Overlay):
                updated = cache.over(_written(cache, values, position, **attributes))
            else:
                updated = cache_update(cache, values, position, **attributes)
            recorder.record(cache, updated)
            return (updated,)

    class Identity(OpRun):
        def _run(self, value: Any) -> tuple[Any]:
            aliases = NodeProto.FromString(self.onnx_node.SerializeToString()).output_alias
            passes = any(alias.kind == ValueAliasProto.MUST_ALIAS for alias in aliases)
            return (value if passes or value is None else value.copy(),)

    class Evaluator(ReferenceEvaluator):
        """Hands the two operators on to subgraphs and, unlike its base, to functions."""

        def __init__(self, model: Any, **options: Any) -> None:
            super().__init__(model, **{**options, "new_ops": [CacheUpdate, Identity]})

    stock = onnx.ModelProto.FromString(proto.SerializeToString())
    stock.ir_version = BASE_IR_VERSION
    names = [value.name for value in proto.graph.output]
    results = Evaluator(stock).run(names, dict(inputs))
    return dict(zip(names, results, strict=True))


def _reachable(proto: ModelProto, inputs: Mapping[str, Contents]) -> History:
    """The histories of a run that is refused, whatever the order of independent updates.

    They are those of the graph without the nodes that fail and without all that depends on them. What a node with a
    body did before it failed counts too.
    """
    best: dict[str, tuple[Contents, ...]] = {}
    kept: list[NodeProto] = []
    lost: set[str] = set()
    for node in proto.graph.node:
        if not lost.isdisjoint(_names_read(node)):
            lost.update(node.output)
            continue
        kept.append(node)
        if node.domain in ("", "ai.onnx") and not any(attribute.HasField("g") for attribute in node.attribute):
            continue  # can neither update nor fail
        recorder = _Recorder.of(proto, inputs)
        try:
            _evaluate(_only(proto, kept), inputs, recorder)
        except OracleRefusal:
            kept.pop()
            lost.update(node.output)
        for root, contents in recorder.classes().items():
            best[root] = max(best.get(root, ()), contents, key=len)
    return best


def _only(proto: ModelProto, nodes: Sequence[NodeProto]) -> ModelProto:
    """The model with these nodes of its graph, and without outputs."""
    model = ModelProto.FromString(proto.SerializeToString())
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(nodes)
    return model


def _names_read(node: NodeProto) -> set[str]:
    """Every name that the node or a node in its bodies reads; the empty name of an absent operand is not one."""
    names = set(node.input)
    for attribute in node.attribute:
        names.update(value.name for value in attribute.g.output)
        for inner in attribute.g.node:
            names |= _names_read(inner)
    return names - {""}

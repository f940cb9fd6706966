"""MC-SHAPE: types and shapes over alias classes, and the bounds of updates that are known before a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mutcache.diagnostics import Diagnostic, Severity
from mutcache.facts import Aspect, show_elem_type, show_type
from mutcache.frames import Frame
from mutcache.model import Dim, Node, TensorType
from mutcache.proto.onnx_ml import TensorProto
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule
from mutcache.schemas import CIRCULAR, LINEAR, UpdateAttributes, update_attributes


def _report(context: Context, requirement: Req, aspect: Aspect) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for conflict in context.shapes.conflicts:
        if conflict.aspect is not aspect:
            continue
        known, other = conflict.known, conflict.other
        axis = "" if conflict.axis is None else f" in dimension {conflict.axis}"
        message = f"the {aspect}s of one storage differ{axis}: {known}, {other}" + (
            f" ({conflict.reason})" if conflict.reason else ""
        )
        if message not in seen:  # a function may contradict itself once for every call
            seen.add(message)
            yield finding(
                requirement,
                message,
                other.graph,
                node=conflict.node,
                value=other.name,
                hint=f"{known.name!r} and {other.name!r} are the storage of {conflict.root!r}: declare them alike",
            )


@rule(Req.MC_SHAPE_001)
def mc_shape_001_element_types(context: Context) -> Iterator[Diagnostic]:
    """The element types of an alias class are equal."""
    yield from _report(context, Req.MC_SHAPE_001, Aspect.TYPE)


@rule(Req.MC_SHAPE_002)
def mc_shape_002_ranks(context: Context) -> Iterator[Diagnostic]:
    """The ranks of an alias class are equal."""
    yield from _report(context, Req.MC_SHAPE_002, Aspect.RANK)


@rule(Req.MC_SHAPE_003)
def mc_shape_003_dimensions(context: Context) -> Iterator[Diagnostic]:
    """The dimensions of an alias class are equal, symbols included."""
    yield from _report(context, Req.MC_SHAPE_003, Aspect.SHAPE)


@rule(Req.MC_SHAPE_004)
def mc_shape_004_shared_knowledge(context: Context) -> Iterator[Diagnostic]:
    """What is known of one name of a class holds for the others, and for what is computed from them."""
    if context.shapes.merged_error:
        yield finding(
            Req.MC_SHAPE_004,
            "the model contradicts what the names of one storage say together: " + context.shapes.merged_error,
            context.graph,
            hint="each declaration alone is possible; declare all names of the storage alike to see which one is wrong",
        )


@dataclass(frozen=True, slots=True)
class _Update:
    """A CacheUpdate as one frame runs it, with what is known of its operands; axes are non-negative or None."""

    node: Node
    frame: Frame
    attributes: UpdateAttributes
    cache: TensorType
    values: TensorType
    position: TensorType
    axis: int | None
    batch_axis: int | None

    def dim(self, operand: TensorType, axis: int | None) -> Dim:
        """The operand's dimension along ``axis``, None when it is unknown."""
        if operand.dims is None or axis is None or axis >= len(operand.dims):
            return None
        return operand.dims[axis]

    @property
    def origin(self) -> str:
        """For messages: which calls lead here."""
        calls = []
        top = self.frame.top
        while top.outer is not None and top.node is not None:
            calls.append(f"{top.node.label} of {top.outer.scope.graph.path}")
            top = top.outer.top
        return f" (called by {', by '.join(calls)})" if calls else ""


def _updates(context: Context) -> Iterator[_Update]:
    """The updates of tensors that a run may reach; one without its three operands is the base check's finding."""
    for frame in context.shapes.frames:
        graph = frame.scope.graph
        for index in graph.marked:
            node = graph.nodes[index]
            if node.is_cache_update and node.op_type == "CacheUpdate" and len(node.inputs) == 3 and all(node.inputs):
                types = [context.shapes.type_of(name, frame) or TensorType(0, None) for name in node.inputs]
                cache, values, position = (known if isinstance(known, TensorType) else None for known in types)
                if cache is None or values is None or position is None:
                    continue  # the base check rejects containers here
                attributes = update_attributes(frame.bind(node.proto))
                rank = next((len(known.dims) for known in (cache, values) if known.dims is not None), None)
                axis = _normalize(attributes.axis, rank)
                batch_axis = None if attributes.batch_axis is None else _normalize(attributes.batch_axis, rank)
                yield _Update(node, frame, attributes, cache, values, position, axis, batch_axis)


def _normalize(axis: int, rank: int | None) -> int | None:
    if rank is None or not -rank <= axis < rank:
        return None
    return axis % rank


@rule(Req.MC_SHAPE_005)
def mc_shape_005_bounds(context: Context) -> Iterator[Diagnostic]:
    """An update that is known to leave the capacity, or to start before it, is rejected."""
    seen: set[tuple[Node, Severity, str]] = set()  # a function may be wrong once for every call
    for update in _updates(context):
        entered = context.shapes.enters(update.frame)
        if entered is False:
            continue
        capacity = update.dim(update.cache, update.axis)
        length = update.dim(update.values, update.axis)
        constant = context.shapes.constant(update.node.inputs[2], update.frame)
        if constant is not None and constant.dtype.name != "int64":
            constant = None  # no position at all (MC-SHAPE-006)
        positions = [] if constant is None else [int(position) for position in constant.reshape(-1)]
        message = overflow(update.attributes.mode, positions, length, capacity)
        cache = update.node.inputs[0]
        severity = Severity.ERROR if entered else Severity.WARNING
        hint = f"axis {update.attributes.axis} of {cache!r} is the capacity, which no update can leave or extend"
        if not message and context.explain:
            message = _undecided(update, constant is not None, length, capacity)
            severity, hint = Severity.INFO, "a runtime refuses the run if the update does not fit"
        if message and (update.node, severity, message) not in seen:
            seen.add((update.node, severity, message))
            if severity is Severity.WARNING:
                message += ", if the node runs at all"
            yield finding(
                Req.MC_SHAPE_005,
                message + update.origin,
                update.frame.scope.graph,
                node=update.node,
                value=cache,
                hint=hint,
                severity=severity,
            )


def _undecided(update: _Update, constant: bool, length: Dim, capacity: Dim) -> str:
    """What is missing to decide whether an update fits, or ""."""
    cache, values, position = update.node.inputs
    open_ones = []
    if not constant:
        open_ones.append(f"position {position!r} is no constant")
    for what, name, dim in (("length", values, length), ("capacity", cache, capacity)):
        if not isinstance(dim, int):
            open_ones.append(f"the {what}, a size of {name!r}, is not known")
    return f"left to run time: {', '.join(open_ones)}" if open_ones else ""


def overflow(mode: str, positions: list[int], length: Dim, capacity: Dim, bound: str = "capacity") -> str:
    """Why an update is known to fail, or ""; ``bound`` names the capacity. Python's integers cannot overflow here."""
    negative = next((position for position in positions if position < 0), None)
    if negative is not None:
        return f"position {negative} < 0"
    if not isinstance(length, int) or not isinstance(capacity, int):
        return ""
    if length > capacity:
        return f"length {length} > {bound} {capacity}"
    if mode == LINEAR and positions and max(positions) + length > capacity:
        return f"position {max(positions)} + length {length} > {bound} {capacity}"
    return ""


@rule(Req.MC_SHAPE_006)
def mc_shape_006_operands(context: Context) -> Iterator[Diagnostic]:
    """The operands of an update fit each other and its attributes."""
    seen: set[tuple[Node, str]] = set()
    for update in _updates(context):
        for value, message, hint in _misfits(update):
            if (update.node, message) not in seen:  # a function may be wrong once for every call
                seen.add((update.node, message))
                yield finding(
                    Req.MC_SHAPE_006,
                    message + update.origin,
                    update.frame.scope.graph,
                    node=update.node,
                    value=value,
                    hint=hint,
                )


def _misfits(update: _Update) -> Iterator[tuple[str, str, str]]:
    """(value, message, hint) of everything that does not fit."""
    names = update.node.inputs
    attributes, cache, values = update.attributes, update.cache, update.values
    if attributes.mode not in (LINEAR, CIRCULAR):
        yield names[0], f'mode {attributes.mode!r} is neither "linear" nor "circular"', "the default is linear"
    if cache.elem_type and values.elem_type and cache.elem_type != values.elem_type:
        yield (
            names[1],
            f"values {names[1]!r} are {show_elem_type(values.elem_type)}, cache {names[0]!r} is {_show(cache)}",
            "an update copies bytes: cast the values first",
        )
    rank = None if cache.dims is None else len(cache.dims)
    if cache.dims is not None and values.dims is not None and len(cache.dims) != len(values.dims):
        yield (
            names[1],
            f"values {names[1]!r} have rank {len(values.dims)}, cache {names[0]!r} has rank {len(cache.dims)}",
            "give the values the cache's rank; along the axis they have the length of the update",
        )
    elif rank == 0:
        yield names[0], f"cache {names[0]!r} has rank 0, an update needs an axis", "a cache has at least one dimension"
    else:
        yield from _axis_misfits(update, rank)
        yield from _dimension_misfits(update)
    yield from _position_misfits(update)


def _axis_misfits(update: _Update, rank: int | None) -> Iterator[tuple[str, str, str]]:
    cache, attributes = update.node.inputs[0], update.attributes
    if rank is None:
        return
    for name, written, axis in (
        ("axis", attributes.axis, update.axis),
        ("batch_axis", attributes.batch_axis, update.batch_axis),
    ):
        if written is not None and axis is None:
            yield (
                cache,
                f"{name} {written} is out of range for cache {cache!r} of rank {rank}",
                f"{name} lies between {-rank} and {rank - 1}",
            )
    if update.axis is not None and update.axis == update.batch_axis:
        yield (
            cache,
            f"batch_axis {attributes.batch_axis} and axis {attributes.axis} are the same axis of {cache!r}",
            "batch_axis has one position per row, axis is the one that positions index",
        )


def _dimension_misfits(update: _Update) -> Iterator[tuple[str, str, str]]:
    cache, values = update.cache.dims, update.values.dims
    names = update.node.inputs
    if cache is None or values is None or update.axis is None:
        return
    shapes = f"{_show(update.values)} into {_show(update.cache)} along axis {update.axis}"
    for axis, (ours, theirs) in enumerate(zip(cache, values, strict=True)):
        if axis != update.axis and isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
            yield (
                names[1],
                f"dimension {axis} of values {names[1]!r} is {theirs}, of cache {names[0]!r} it is {ours} ({shapes})",
                "all dimensions but the one along axis must be equal; nothing is broadcast",
            )


def _position_misfits(update: _Update) -> Iterator[tuple[str, str, str]]:
    name, position = update.node.inputs[2], update.position
    if position.elem_type not in (0, TensorProto.INT64):
        yield name, f"position {name!r} is {show_elem_type(position.elem_type)}, it must be INT64", "cast it to INT64"
    if position.dims is None:
        return
    shape = _show(position)
    if update.attributes.batch_axis is None:
        if position.dims:
            hint = "squeeze it to a scalar" if len(position.dims) == 1 else "a position is a scalar"
            yield (
                name,
                f"position {name!r} is {shape}, without batch_axis it must have rank 0",
                f"{hint}, or set batch_axis for one position per row",
            )
        return
    batch = update.dim(update.cache, update.batch_axis)
    if len(position.dims) != 1:
        yield (
            name,
            f"position {name!r} is {shape}, with batch_axis it must have rank 1",
            "give one position per row of batch_axis",
        )
    elif isinstance(batch, int) and isinstance(position.dims[0], int) and position.dims[0] != batch:
        yield (
            name,
            f"{position.dims[0]} position(s) in {name!r} for {batch} row(s) of {update.node.inputs[0]!r}",
            "give one position per row of batch_axis",
        )


def _show(known: TensorType) -> str:
    return show_type("tensor", known.elem_type, known.dims)

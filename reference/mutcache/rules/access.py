"""MC-ACCESS: which values may be READ_WRITE."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.alias import AliasClasses, Storage, returned_formal
from mutcache.constructs import slots
from mutcache.diagnostics import Diagnostic, Severity
from mutcache.facts import show_elem_type
from mutcache.model import Graph, MapType, OtherType, QuantizedTensorType, SequenceType, TensorType, Value, ValueType
from mutcache.proto.onnx_ml import TensorProto
from mutcache.requirements import Req
from mutcache.rules.registry import Context, Scope, calls, finding, is_lent, rule


def _mutable_inputs(context: Context) -> Iterator[tuple[Graph, Value]]:
    """The READ_WRITE inputs of every graph and function."""
    return ((scope.graph, value) for scope in context.scopes for value in scope.graph.inputs if value.is_mutable)


@rule(Req.MC_ACCESS_001)
def mc_access_001_only_inputs(context: Context) -> Iterator[Diagnostic]:
    """READ_WRITE stands on graph inputs, and on formal inputs that are bound to one."""
    for scope in context.scopes:
        mutable = {value.name for value in scope.graph.inputs if value.is_mutable}
        wrong = (value for value in scope.graph.annotated if value.is_mutable and value.name not in mutable)
        for name in dict.fromkeys(value.name for value in wrong):
            yield finding(
                Req.MC_ACCESS_001,
                f"{name!r} is READ_WRITE, but "
                + (
                    "its entry among the inputs is not"
                    if name in scope.inputs
                    else f"it is no input of {scope.graph.path}"
                ),
                scope.graph,
                value=name,
                hint="access says what a caller must expect: set READ_WRITE on the input whose storage is modified",
            )
        for formal, _, fault in _bindings(context, scope):
            if fault:
                yield finding(
                    Req.MC_ACCESS_001,
                    f"formal input {formal!r} is READ_WRITE, but {fault}",
                    scope.graph,
                    value=formal,
                    hint="READ_WRITE needs storage that the caller lends: bind it to a READ_WRITE graph input, "
                    "or remove it",
                )
    demands = _demands(context)
    for scope in context.executed:
        for index, body, arguments in calls(context, scope):
            for formal, argument in arguments.items():
                # What the function mutates is judged by MC-FLOW-007.
                if not argument or formal not in demands[body] or formal in body.mutations:
                    continue
                storage = scope.classes.storage(argument)
                if not is_lent(context, storage):
                    yield finding(
                        Req.MC_ACCESS_001,
                        f"input {formal!r} of {body.graph.path} is READ_WRITE, but bound to {argument!r}, the storage "
                        f"of {storage.name!r}, which is no READ_WRITE graph input",
                        scope.graph,
                        node=scope.graph.nodes[index],
                        value=argument,
                        hint="pass a READ_WRITE graph input, or what has become of it",
                    )


def _bindings(context: Context, scope: Scope) -> Iterator[tuple[str, Storage | None, str]]:
    """Each READ_WRITE formal of a subgraph, the storage that it is bound to, and what is wrong with that, or ""."""
    classes, outer = scope.classes, scope.classes.outer
    if outer is None:
        return
    node = outer.graph.nodes[classes.holder]
    slot_of = {slot.formal: slot for slot in slots(node, scope.graph)}
    for position, value in enumerate(scope.graph.inputs):
        if not value.is_mutable:
            continue
        slot = slot_of.get(position)
        initial = "" if slot is None else node.inputs[slot.initial]
        if slot is None or not initial:
            yield value.name, None, "no carried slot binds it to storage"
            continue
        storage = outer.storage(initial)
        if value.name in classes.mutations:
            yield value.name, storage, ""  # MC-ALIAS-010 and MC-FLOW-004 judge what is mutated
        elif not is_lent(context, storage):
            yield (
                value.name,
                storage,
                f"bound to {initial!r}, the storage of {storage.name!r}, which is no READ_WRITE graph input",
            )
        elif returned_formal(classes, slot.result) != value.name:
            result = scope.graph.outputs[slot.result].name
            yield value.name, storage, f"from the second iteration on it is bound to {result!r}, a value of the body"
        else:
            yield value.name, storage, ""


def _demands(context: Context) -> dict[AliasClasses, set[str]]:
    """For each function the formals that must be bound to a READ_WRITE graph input, since something in it says so."""
    demands: dict[AliasClasses, set[str]] = {}
    for top in context.aliases.functions.values():  # callees first
        demanded = demands[top] = {value.name for value in top.graph.inputs if value.is_mutable}
        for classes in top.walk():
            scope = context.scope_of[classes]
            bound = [storage for _, storage, _ in _bindings(context, scope)]
            for _, body, arguments in calls(context, scope):
                bound += [
                    classes.storage(argument)
                    for formal, argument in arguments.items()
                    if argument and formal in demands.get(body, ())
                ]
            demanded.update(storage.name for storage in bound if storage is not None and storage.scope is top)
    return demands


@rule(Req.MC_ACCESS_002)
def mc_access_002_no_initializer(context: Context) -> Iterator[Diagnostic]:
    """A READ_WRITE input has no initializer."""
    for graph, value in _mutable_inputs(context):
        sparse = value.name in graph.sparse_initializers
        if sparse or value.name in graph.initializers:
            yield finding(
                Req.MC_ACCESS_002,
                f"READ_WRITE input {value.name!r} has {'a sparse' if sparse else 'an'} initializer of the same name",
                graph,
                value=value.name,
                hint="remove the initializer: a model's own data is never mutated, the caller must lend the storage",
            )


@rule(Req.MC_ACCESS_003)
def mc_access_003_type(context: Context) -> Iterator[Diagnostic]:
    """A READ_WRITE input is a tensor, not of strings, or a sequence or map of quantized tensors."""
    for graph, value in _mutable_inputs(context):
        wrong = _unfit(value.type)
        if value.type is None and graph is context.graph:
            wrong = "without a type"
        if wrong:
            yield finding(
                Req.MC_ACCESS_003,
                f"READ_WRITE input {value.name!r} is {wrong}",
                graph,
                value=value.name,
                hint="a cache is a non-string tensor, or a sequence or map of quantized tensors "
                "(for pages of plain tensors declare an identity quantization)",
            )


def _unfit(value_type: ValueType | None) -> str:
    """What makes the type unfit for a cache, or ""; a formal input need not say its type."""
    match value_type:
        case TensorType(elem_type=TensorProto.STRING):
            return "a tensor of strings, which have no fixed width"
        case None | TensorType():
            return ""
        case QuantizedTensorType():
            return "a quantized tensor outside a sequence or map"
        case SequenceType(element=inner):
            container = "a sequence"
        case MapType(key_type=key, value=inner):
            if key != TensorProto.INT64:
                return f"a map with keys of type {show_elem_type(key)}, page ids are INT64"
            container = "a map"
        case OtherType(kind=kind):
            return f"of kind {kind}"
    match inner:
        case None | QuantizedTensorType():
            return ""
        case TensorType(elem_type=elem_type):
            return f"{container} of tensors of {show_elem_type(elem_type)}"
        case _:
            return f"{container} of something else than quantized tensors"


@rule(Req.MC_ACCESS_004)
def mc_access_004_is_mutated(context: Context) -> Iterator[Diagnostic]:
    """A READ_WRITE input is mutated by something; a warning if not."""
    for value in context.graph.inputs:
        if value.is_mutable and value.name not in context.classes.mutations:
            yield finding(
                Req.MC_ACCESS_004,
                f"input {value.name!r} is READ_WRITE, but no node mutates it",
                context.graph,
                value=value.name,
                hint="make it READ_ONLY, so that callers may share its storage",
                severity=Severity.WARNING,
            )

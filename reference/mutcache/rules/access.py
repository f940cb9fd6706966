"""MC-ACCESS: which values may be READ_WRITE."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.diagnostics import Diagnostic, Severity
from mutcache.facts import show_elem_type
from mutcache.model import MapType, OtherType, QuantizedTensorType, SequenceType, TensorType, Value, ValueType
from mutcache.proto.onnx_ml import TensorProto
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule


def _mutable_inputs(context: Context) -> Iterator[Value]:
    return (value for value in context.graph.inputs if value.is_mutable)


@rule(Req.MC_ACCESS_001)
def mc_access_001_only_inputs(context: Context) -> Iterator[Diagnostic]:
    """READ_WRITE stands on graph inputs and formal inputs only."""
    for graph in context.scopes:
        inputs = {value.name for value in graph.inputs}
        mutable = {value.name for value in graph.inputs if value.is_mutable}
        wrong = (value for value in graph.annotated if value.is_mutable and value.name not in mutable)
        for name in dict.fromkeys(value.name for value in wrong):
            yield finding(
                Req.MC_ACCESS_001,
                f"{name!r} is READ_WRITE, but "
                + ("its entry among the inputs is not" if name in inputs else f"it is no input of {graph.path}"),
                graph,
                value=name,
                hint="access says what a caller must expect: set READ_WRITE on the input whose storage is modified",
            )


@rule(Req.MC_ACCESS_002)
def mc_access_002_no_initializer(context: Context) -> Iterator[Diagnostic]:
    """A READ_WRITE input has no initializer."""
    graph = context.graph
    for value in _mutable_inputs(context):
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
    for value in _mutable_inputs(context):
        wrong = _unfit(value.type)
        if wrong:
            yield finding(
                Req.MC_ACCESS_003,
                f"READ_WRITE input {value.name!r} is {wrong}",
                context.graph,
                value=value.name,
                hint="a cache is a non-string tensor, or a sequence or map of quantized tensors "
                "(for pages of plain tensors declare an identity quantization)",
            )


def _unfit(value_type: ValueType | None) -> str:
    """What makes the type unfit for a cache, or ""; an absent type is the base check's finding."""
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
    classes = context.classes
    for value in _mutable_inputs(context):
        if value.name not in classes.mutations and classes.root_of.get(value.name, "") not in classes.unjudged:
            yield finding(
                Req.MC_ACCESS_004,
                f"input {value.name!r} is READ_WRITE, but no node mutates it",
                context.graph,
                value=value.name,
                hint="make it READ_ONLY, so that callers may share its storage",
                severity=Severity.WARNING,
            )

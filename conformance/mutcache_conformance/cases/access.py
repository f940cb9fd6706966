"""ACCESS: which values may be READ_WRITE."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import TensorProto

from mutcache.proto.onnx_ml import ModelProto, TypeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case
from mutcache_conformance.cases.builder import initializer, tensor
from mutcache_conformance.cases.scene import Fault, family
from mutcache_conformance.cases.sketch import DTYPE, OPERANDS, SHAPE, Sketch, one_cache

Edit = Callable[[ModelProto], object]


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the area."""
    yield from _places(nonce)
    yield from _types(nonce)


def _places(nonce: int) -> Iterator[Case]:
    where, constant = (Req.MC_ACCESS_001,), (Req.MC_ACCESS_002,)
    sketch = one_cache(nonce, "access places").node("Neg", ["cache"], "negated").node("Neg", ["negated"], "same")
    sketch.output("same", 2).update(*OPERANDS)
    name, content = sketch.draw.name, sketch.draw.content("initializer", DTYPE, SHAPE)

    def output(index: int) -> Edit:
        def edit(model: ModelProto) -> None:
            model.graph.output[index].access = ValueInfoProto.READ_WRITE

        return edit

    def intermediate(model: ModelProto) -> None:
        model.graph.value_info.append(tensor(name("negated"), DTYPE, [None, None], mutable=True))

    def default(model: ModelProto) -> None:
        model.graph.initializer.append(initializer(name("cache"), DTYPE, SHAPE, content))

    def sparse_default(model: ModelProto) -> None:
        sparse = model.graph.sparse_initializer.add(dims=SHAPE)
        sparse.values.CopyFrom(initializer(name("cache"), DTYPE, [1], content[:4]))
        sparse.indices.CopyFrom(initializer("", TensorProto.INT64, [1], bytes(8)))

    yield from family(
        "access-001/graph-input",
        (*where, *constant),
        "A graph input without a default is READ_WRITE.",
        sketch.program(2),
        Fault("access-001/output", where, "An ordinary output is READ_WRITE.", output(0)),
        Fault("access-001/aliased-output", where, "The result of the update is READ_WRITE.", output(1)),
        Fault("access-001/intermediate", where, "An intermediate value is READ_WRITE.", intermediate),
        Fault("access-002/initializer", constant, "The READ_WRITE input has a default.", default),
        Fault("access-002/sparse-initializer", constant, "The same with a sparse default.", sparse_default),
    )


def _types(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_ACCESS_003,)
    sketch = Sketch(nonce, "access types", "cache", "spare").feed("values", "position").update(*OPERANDS)

    def spare(edit: Callable[[TypeProto], object]) -> Edit:
        return lambda model: edit(model.graph.input[1].type)

    def string(value: TypeProto) -> None:
        value.tensor_type.elem_type = TensorProto.STRING

    def sequence(value: TypeProto) -> None:
        tensor_type = TypeProto.FromString(value.SerializeToString())
        value.sequence_type.elem_type.CopyFrom(tensor_type)

    def optional(value: TypeProto) -> None:
        tensor_type = TypeProto.FromString(value.SerializeToString())
        value.optional_type.elem_type.CopyFrom(tensor_type)

    def sparse(value: TypeProto) -> None:
        value.sparse_tensor_type.elem_type = DTYPE
        value.sparse_tensor_type.shape.SetInParent()

    def default(model: ModelProto) -> None:
        content = sketch.draw.content("default", DTYPE, SHAPE)
        model.graph.initializer.append(initializer(sketch.draw.name("spare"), DTYPE, SHAPE, content))

    yield from family(
        "access-004/not-updated",
        (Req.MC_ACCESS_004, *requirement),
        "A READ_WRITE input that no node updates is no error.",
        sketch.program(4),
        Fault("access-003/string", requirement, "A READ_WRITE tensor of strings.", spare(string)),
        Fault("access-003/sequence", requirement, "A READ_WRITE sequence of plain tensors.", spare(sequence)),
        Fault("access-003/optional", requirement, "A READ_WRITE optional.", spare(optional)),
        Fault("access-003/sparse", requirement, "A READ_WRITE sparse tensor.", spare(sparse)),
        Fault(
            "access-002/not-updated",
            (Req.MC_ACCESS_002,),
            "A READ_WRITE input that no node updates, with a default.",
            default,
        ),
    )

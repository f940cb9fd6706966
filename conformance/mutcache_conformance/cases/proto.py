"""PROTO: what the fields of the delta mean, and what they may not say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import TensorProto

from mutcache.proto import BASE_IR_VERSION, IR_VERSION
from mutcache.proto.onnx_ml import ModelProto, ValueAliasProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.case import Case, Storage
from mutcache_conformance.cases.builder import model, node, tensor
from mutcache_conformance.cases.draw import Draw, int64
from mutcache_conformance.cases.scene import Fault, Program, Scene, family
from mutcache_conformance.cases.sketch import Sketch, one_cache
from mutcache_conformance.cases.update import Update


def cases(nonce: int) -> Iterator[Case]:
    """All cases of the area."""
    yield from _unannotated(nonce)
    yield from _ir_version(nonce)
    yield from _domain(nonce)
    yield from _numbers(nonce)


def _unannotated(nonce: int) -> Iterator[Case]:
    draw = Draw(nonce, "unannotated")
    name = draw.name
    dims = [name("batch"), name("max_length"), name("width")]
    past = tensor(name("past"), TensorProto.FLOAT, dims)
    rows = tensor(name("rows"), TensorProto.FLOAT, [name("batch"), name("new_length"), name("width")])
    indices = tensor(name("indices"), TensorProto.INT64, [name("batch")])
    present = tensor(name("present"), TensorProto.FLOAT, dims)
    scatter = node("TensorScatter", [past.name, rows.name, indices.name], [present.name])
    feeds = {
        past.name: draw.storage("past", TensorProto.FLOAT, (2, 8, 4)),
        rows.name: draw.storage("rows", TensorProto.FLOAT, (2, 3, 4)),
        indices.name: Storage("indices", TensorProto.INT64, (2,), int64(*draw.integers("indices", 2, 0, 5))),
    }
    functional = Program(model([past, rows, indices], [scatter], [present], ir_version=BASE_IR_VERSION), {}, feeds)
    requirement = (Req.MC_PROTO_001,)

    def whole(what: str, title: str, program: Program) -> Case:
        return Scene().whole(program).case(f"proto-001/{what}", requirement, title)

    def newer(edited: ModelProto) -> None:
        edited.ir_version = IR_VERSION

    def explicit(edited: ModelProto) -> None:
        newer(edited)
        for value in (*edited.graph.input, *edited.graph.output):
            value.access = ValueInfoProto.READ_ONLY
            value.alias_of = ""

    title = "A model without annotations, of the last version before them: TensorScatter leaves its operand alone."
    yield whole("unannotated", title, functional)
    title = "A model without annotations, of the version that has them."
    yield whole("unannotated-newer", title, functional.edited(newer))
    title = "READ_ONLY and the empty alias_of, written out, mean what their absence means."
    yield whole("explicit-defaults", title, functional.edited(explicit))

    annotated = Update(Draw(nonce, "annotated beside")).program(2)

    def beside(edited: ModelProto) -> None:
        newer(edited)
        edited.graph.input.extend(annotated.model.graph.input)
        edited.graph.node.extend(annotated.model.graph.node)
        edited.graph.output.extend(annotated.model.graph.output)
        edited.opset_import.extend(one for one in annotated.model.opset_import if one.domain)

    both = functional.edited(beside)
    title = "A mutable cache beside an ordinary input: TensorScatter still leaves its operand alone."
    yield whole("mixed", title, Program(both.model, annotated.mutable, {**functional.feeds, **annotated.feeds}))


def _ir_version(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PROTO_002,)

    def older(edited: ModelProto) -> None:
        edited.ir_version = BASE_IR_VERSION

    yield from family(
        "proto-002/current",
        requirement,
        "All annotations of an update, in the version that has them.",
        Update(Draw(nonce, "ir version")).program(2),
        Fault("proto-002/older", requirement, "The same in the version before.", older),
    )
    yield from family(
        "proto-002/current-access-only",
        requirement,
        "READ_WRITE is the only annotation.",
        one_cache(nonce, "access only").node("Neg", ["cache"], "negated").output("negated", 2).program(0),
        Fault("proto-002/older-access-only", requirement, "The same in the version before.", older),
    )
    named = Sketch(nonce, "alias only").feed("values").node("Identity", ["values"], "named").alias(0, 0)
    yield from family(
        "proto-002/current-alias-only",
        requirement,
        "An Identity that passes an ordinary input on is the only annotation.",
        named.node("Neg", ["named"], "negated").output("negated", 2).program(),
        Fault("proto-002/older-alias-only", requirement, "The same in the version before.", older),
    )


def _domain(nonce: int) -> Iterator[Case]:
    requirement = (Req.MC_PROTO_006,)

    def version(number: int) -> Callable[[ModelProto], object]:
        def edit(edited: ModelProto) -> None:
            edited.opset_import[1].version = number

        return edit

    yield from family(
        "proto-006/version-1",
        requirement,
        "The domain of CacheUpdate is imported, in the one version that it has.",
        Update(Draw(nonce, "domain")).program(2),
        Fault("proto-006/no-import", requirement, "It is not imported.", lambda edited: edited.opset_import.pop()),
        Fault("proto-006/version-2", requirement, "It is imported in a version to come.", version(2)),
        Fault("proto-006/version-0", requirement, "It is imported in a version before the first.", version(0)),
    )


def _numbers(nonce: int) -> Iterator[Case]:
    kind, access = (Req.MC_PROTO_003,), (Req.MC_PROTO_004,)
    update = Update(Draw(nonce, "numbers"))

    def alias(edit: Callable[[ValueAliasProto], object]) -> Callable[[ModelProto], object]:
        return lambda edited: edit(edited.graph.node[0].output_alias[0])

    def wire(data: bytes) -> Callable[[ValueAliasProto], object]:
        """Replace the kind by bytes that this version of the proto has no meaning for."""

        def edit(entry: ValueAliasProto) -> None:
            entry.ClearField("kind")
            entry.MergeFromString(data)

        return edit

    def undefined(entry: ValueAliasProto) -> None:
        entry.kind = ValueAliasProto.UNDEFINED

    def value(index: int, data: bytes) -> Callable[[ModelProto], object]:
        def edit(edited: ModelProto) -> None:
            edited.graph.input[index].ClearField("access")
            edited.graph.input[index].MergeFromString(data)

        return edit

    def output(edited: ModelProto) -> None:
        edited.graph.output[0].MergeFromString(b"\x28\x07")

    def twice(edited: ModelProto) -> None:
        edited.graph.input[0].MergeFromString(b"\x28\x07")

    yield from family(
        "proto-003/must-alias",
        (*kind, *access),
        "The kind and the access that this version defines.",
        update.program(update.draw.integer("position", 0, 5)),
        Fault("proto-003/undefined", kind, "The kind is UNDEFINED.", alias(undefined)),
        Fault("proto-003/absent", kind, "The entry has no kind.", alias(lambda entry: entry.ClearField("kind"))),
        # Tags: field number * 8 + wire type; 0 is a varint, 2 has a length.
        Fault("proto-003/unknown", kind, "The kind has a number of a later version.", alias(wire(b"\x18\x07"))),
        Fault("proto-003/other-wire-type", kind, "The kind is no number.", alias(wire(b"\x1a\x01\x01"))),
        Fault("proto-004/unknown", access, "The cache has an access of a later version.", value(0, b"\x28\x07")),
        Fault("proto-004/unknown-beside", access, "An ordinary input has an unknown access.", value(1, b"\x28\x02")),
        Fault("proto-004/other-wire-type", access, "An access that is no number.", value(1, b"\x2a\x01\x01")),
        Fault("proto-004/unknown-output", access, "The result has an unknown access.", output),
        Fault("proto-004/unknown-twice", access, "An access that is known, and then one that is not.", twice),
    )

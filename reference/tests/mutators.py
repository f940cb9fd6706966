"""Ways to break one rule of a sound model, each at every place where it can be broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import hypothesis.strategies as st
from flow_models import negated, updated, value
from sound_models import SoundModel, sound_models

from mutcache.proto.onnx_ml import FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, initializer

Edit = Callable[[], object]


@dataclass(frozen=True)
class Mutator:
    """One way to break one rule.

    Attributes:
        requirements: the rule; or several of which it is one, depending on what the model does there.
        places: the edits that break it, one for each place; ``model`` of what is given may be modified.
        also: what the same edit may break in passing, depending on where it is made.
        inlined: whether the fault outlives the inlining of functions wherever it stands. What a body says of its
            formals and results gives way to what the caller says, and the entries of a call go with it.
    """

    requirements: tuple[Req, ...]
    places: Callable[[SoundModel], Iterator[Edit]]
    also: frozenset[Req] = frozenset()
    inlined: bool = True


@dataclass(frozen=True)
class BrokenModel:
    """A model, and how it was broken."""

    model: ModelProto
    mutator: Mutator


@st.composite
def broken_models(draw: st.DrawFn) -> BrokenModel:
    """A sound model with one rule broken in one place."""
    sound = draw(sound_models())
    possible = [(mutator, places) for mutator in MUTATORS if (places := list(mutator.places(sound)))]
    mutator, places = draw(st.sampled_from(possible))
    draw(st.sampled_from(places))()
    return BrokenModel(sound.model, mutator)


# Places.


def scopes(model: ModelProto) -> Iterator[GraphProto | FunctionProto]:
    """The main graph, the functions, and every graph inside them."""
    pending: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    while pending:
        scope = pending.pop()
        yield scope
        pending += [attribute.g for one in scope.node for attribute in one.attribute if attribute.HasField("g")]


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    return (one for scope in scopes(model) for one in scope.node)


def _values(model: ModelProto) -> Iterator[ValueInfoProto]:
    """Every entry for a value."""
    for scope in scopes(model):
        if isinstance(scope, GraphProto):
            yield from (*scope.input, *scope.output)
        yield from scope.value_info


def _updates(model: ModelProto) -> Iterator[NodeProto]:
    return (one for one in _nodes(model) if one.op_type == "CacheUpdate")


def _named(model: ModelProto) -> Iterator[ValueInfoProto]:
    return (value for value in _values(model) if value.alias_of)


def _marked(model: ModelProto) -> Iterator[NodeProto]:
    return (one for one in _nodes(model) if one.output_alias)


# Edits.


def _ports(field: str, count: Callable[[NodeProto], int]) -> Callable[[SoundModel], Iterator[Edit]]:
    def places(sound: SoundModel) -> Iterator[Edit]:
        for one in _updates(sound.model):
            for index in (-1, count(one), 2**31 - 1):
                yield partial(setattr, one.output_alias[0], field, index)

    return places


def _unknown_kind(sound: SoundModel) -> Iterator[Edit]:
    for one in _updates(sound.model):
        yield partial(one.output_alias[0].ClearField, "kind")


def _old_version(sound: SoundModel) -> Iterator[Edit]:
    yield partial(setattr, sound.model, "ir_version", 14)


def _unknown_access(sound: SoundModel) -> Iterator[Edit]:
    def edit(one: ValueInfoProto) -> None:
        one.ClearField("access")
        one.MergeFromString(bytes([5 << 3, 9]))

    return (partial(edit, one) for one in _values(sound.model) if one.access == ValueInfoProto.READ_WRITE)


def _names_nothing(sound: SoundModel) -> Iterator[Edit]:
    return (partial(setattr, one, "alias_of", "nowhere") for one in _named(sound.model))


def _names_itself(sound: SoundModel) -> Iterator[Edit]:
    return (partial(setattr, one, "alias_of", one.name) for one in _named(sound.model))


def _names_another_cache(sound: SoundModel) -> Iterator[Edit]:
    roots = sound.root_of
    for one in (*sound.model.graph.output, *sound.model.graph.value_info):
        for root in sorted(set(roots.values()) - {roots.get(one.name)}) if one.alias_of else ():
            yield partial(setattr, one, "alias_of", root)


def _input_names_something(sound: SoundModel) -> Iterator[Edit]:
    caches = set(sound.root_of.values())
    return (
        partial(setattr, one, "alias_of", cache)
        for one in sound.model.graph.input
        if one.name not in caches
        for cache in sorted(caches)
    )


def _says_nothing(sound: SoundModel) -> Iterator[Edit]:
    return (partial(one.ClearField, "alias_of") for one in sound.model.graph.output if one.alias_of)


def _same_entry(sound: SoundModel) -> Iterator[Edit]:
    def edit(one: NodeProto) -> None:
        one.output_alias.add().CopyFrom(one.output_alias[0])

    return (partial(edit, one) for one in _marked(sound.model))


def _no_entry(sound: SoundModel) -> Iterator[Edit]:
    return (partial(one.ClearField, "output_alias") for one in _updates(sound.model))


def _entry_of_if(sound: SoundModel) -> Iterator[Edit]:
    return (partial(aliased, one) for one in _nodes(sound.model) if one.op_type == "If")


def _values_are_the_cache(sound: SoundModel) -> Iterator[Edit]:
    return (partial(one.input.__setitem__, 1, one.input[0]) for one in _updates(sound.model))


def _stale_read(sound: SoundModel) -> Iterator[Edit]:
    return (partial(sound.model.graph.node.append, negated(root, "late")) for root in sorted(sound.mutated))


def _stale_output(sound: SoundModel) -> Iterator[Edit]:
    return (partial(sound.model.graph.output.append, value(root)) for root in sorted(sound.mutated))


def _fork(sound: SoundModel) -> Iterator[Edit]:
    return (partial(sound.model.graph.node.append, updated(root, "late")) for root in sorted(sound.mutated))


def _not_lent(sound: SoundModel) -> Iterator[Edit]:
    return (partial(one.ClearField, "access") for one in sound.model.graph.input if one.name in sound.mutated)


def _value_is_read_write(sound: SoundModel) -> Iterator[Edit]:
    return (
        partial(setattr, one, "access", ValueInfoProto.READ_WRITE)
        for scope in scopes(sound.model)
        if isinstance(scope, GraphProto)
        for one in scope.output
        if one.name not in {formal.name for formal in scope.input}
    )


def _has_a_default(sound: SoundModel) -> Iterator[Edit]:
    constants = sound.model.graph.initializer
    return (
        partial(constants.append, initializer(one.name, 1, [8, 4], bytes(128)))
        for one in sound.model.graph.input
        if one.access == ValueInfoProto.READ_WRITE
    )


def _other_type(sound: SoundModel) -> Iterator[Edit]:
    return (partial(setattr, one.type.tensor_type, "elem_type", 6) for one in sound.model.graph.output if one.alias_of)


def _bodies(model: ModelProto, operator: str) -> Iterator[tuple[NodeProto, GraphProto]]:
    for one in _nodes(model):
        if one.op_type == operator and not one.domain:
            yield from ((one, attribute.g) for attribute in one.attribute if attribute.HasField("g"))


def _swapped_slots(operator: str, first: int) -> Callable[[SoundModel], Iterator[Edit]]:
    """Body outputs of two caches in each other's place; the first slot of these bodies carries a plain value."""

    def swap(body: GraphProto, slot: int) -> None:
        outputs = [ValueInfoProto.FromString(one.SerializeToString()) for one in body.output]
        outputs[slot], outputs[slot + 1] = outputs[slot + 1], outputs[slot]
        del body.output[:]
        body.output.extend(outputs)

    def places(sound: SoundModel) -> Iterator[Edit]:
        for _, body in _bodies(sound.model, operator):
            carried = [one.access == ValueInfoProto.READ_WRITE for one in body.input]
            for slot in range(sum(carried) - 1):
                yield partial(swap, body, first + slot)

    return places


def _scan_output_has_an_entry(sound: SoundModel) -> Iterator[Edit]:
    for operator, initial in (("Loop", 2), ("Scan", 0)):
        for one, _ in _bodies(sound.model, operator):
            yield partial(aliased, one, len(one.output) - 1, initial)


def _branch_copies(sound: SoundModel) -> Iterator[Edit]:
    for _, body in _bodies(sound.model, "If"):
        leaving = {one.name for one in body.output if one.alias_of}
        for one in body.node:
            if one.op_type == "Identity" and leaving.intersection(one.output):
                yield partial(one.ClearField, "output_alias")


def _silent_output(sound: SoundModel) -> Iterator[Edit]:
    def edit(body: FunctionProto, name: str) -> None:
        for one in body.value_info:
            if one.name == name:
                one.ClearField("alias_of")

    for body in sound.model.functions:
        named = {one.name for one in body.value_info if one.alias_of}
        yield from (partial(edit, body, name) for name in body.output if name in named)


#: What may follow when the classes of two slots go into each other's place: all that is said of them is wrong then.
_ASTRAY = frozenset(
    {
        *(requirement for requirement in Req if requirement.startswith("MC-FLOW-")),
        *(Req.MC_ACCESS_001, Req.MC_ALIAS_005, Req.MC_ALIAS_008, Req.MC_ALIAS_009, Req.MC_ALIAS_010),
        *(Req.MC_ALIAS_011, Req.MC_ALIAS_012, Req.MC_ALIAS_014, Req.MC_ALIAS_015),
    }
)

MUTATORS = (
    Mutator((Req.MC_PROTO_003,), _unknown_kind),
    Mutator((Req.MC_PROTO_004,), _unknown_access, inlined=False),
    Mutator((Req.MC_ALIAS_001,), _ports("output_index", lambda one: len(one.output))),
    Mutator((Req.MC_ALIAS_002,), _ports("input_index", lambda one: len(one.input))),
    Mutator((Req.MC_ALIAS_003,), _same_entry, inlined=False),
    Mutator((Req.MC_ALIAS_005,), _names_another_cache),
    Mutator((Req.MC_ALIAS_006,), _names_nothing, inlined=False),
    Mutator((Req.MC_ALIAS_007,), _names_itself, inlined=False),
    Mutator((Req.MC_ALIAS_008,), _input_names_something),
    Mutator((Req.MC_ALIAS_009,), _says_nothing),
    Mutator((Req.MC_ALIAS_010, Req.MC_FLOW_007), _not_lent, also=frozenset({Req.MC_ACCESS_001})),
    Mutator((Req.MC_ALIAS_011,), _stale_read),
    Mutator((Req.MC_ALIAS_011,), _stale_output),
    Mutator((Req.MC_ALIAS_012,), _fork),
    Mutator((Req.MC_ALIAS_014,), _values_are_the_cache),
    Mutator((Req.MC_ALIAS_015,), _no_entry),
    Mutator((Req.MC_ALIAS_015,), _entry_of_if),
    Mutator((Req.MC_ACCESS_001,), _value_is_read_write),
    Mutator((Req.MC_ACCESS_002,), _has_a_default),
    Mutator((Req.MC_SHAPE_001,), _other_type),
    Mutator((Req.MC_FLOW_002, Req.MC_FLOW_003), _branch_copies, also=frozenset({Req.MC_ALIAS_008})),
    Mutator((Req.MC_FLOW_004,), _swapped_slots("Loop", 2), also=_ASTRAY),
    Mutator((Req.MC_FLOW_005,), _swapped_slots("Scan", 1), also=_ASTRAY),
    Mutator((Req.MC_FLOW_005,), _scan_output_has_an_entry),
    Mutator((Req.MC_FLOW_007, Req.MC_ALIAS_009), _silent_output, inlined=False),
    Mutator((Req.MC_PROTO_002,), _old_version),
)

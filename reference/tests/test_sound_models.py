"""A sound model is never rejected: laws over random models with branches, loops, scans and functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from sound_models import SoundModel, sound_models

from mutcache.alias import alias_classes
from mutcache.check import diagnose
from mutcache.decode import decode
from mutcache.errors import CheckError
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import ModelProto
from mutcache.scopes import walk
from mutcache.transform import sort

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(sound_models())
@SLOW
def test_a_sound_model_is_accepted(sound: SoundModel) -> None:
    before = serialize(sound.model)
    assert [str(finding) for finding in diagnose(sound.model) if finding.is_error] == []
    assert serialize(sound.model) == before


@given(sound_models())
@SLOW
def test_roots_and_mutations_are_those_that_the_model_was_made_of(sound: SoundModel) -> None:
    main = alias_classes(sound.model).main
    assert main.root_of == sound.root_of
    assert set(main.mutations) == sound.mutated
    for name, root in sound.root_of.items():
        assert main.storage(name).scope is main
        assert main.storage(name).name == root


@given(sound_models())
@SLOW
def test_every_scope_resolves_to_storages_of_its_outermost_graph(sound: SoundModel) -> None:
    for scope in alias_classes(sound.model).walk():
        assert set(scope.version_of) == set(scope.base_of) == set(scope.root_of)
        for name, root in scope.root_of.items():
            assert scope.storage(name) == scope.storage(root)
            assert scope.storage(name).scope.outer is None


def _faults(made: ModelProto) -> list[Callable[[], object]]:
    """Ways to break a model anywhere in it."""
    decoded = decode(made)
    protos = [graph.proto for top in (decoded.graph, *decoded.functions.values()) for graph in walk(top)]
    found: list[Callable[[], object]] = []
    for proto in protos:
        names = [name for one in proto.node for name in (*one.input, *one.output)] or [""]
        for position, one in enumerate(proto.node):
            found += [
                partial(proto.node.__delitem__, position),
                partial(one.ClearField, "output_alias"),
                partial(one.output_alias.add, output_index=1, input_index=1, kind=1),
                partial(one.ClearField, "attribute"),
                partial(one.ClearField, "input"),
            ]
            found += [partial(one.input.__setitem__, at, name) for at in range(len(one.input)) for name in names[:3]]
            found += [partial(one.output.__setitem__, at, names[-1]) for at in range(len(one.output))]
        for field in ("input", "output", "value_info"):
            entries = getattr(proto, field)
            found += [partial(entries.__delitem__, at) for at in range(len(entries))]
            for entry in entries:
                if not isinstance(entry, str):
                    found += [partial(setattr, entry, "alias_of", names[-1]), partial(setattr, entry, "access", 1)]
    return found


@given(sound_models(), st.data())
@SLOW
def test_no_broken_model_is_beyond_a_verdict(sound: SoundModel, data: st.DataObject) -> None:
    broken = sound.model
    for _ in range(data.draw(st.integers(1, 3))):
        data.draw(st.sampled_from(_faults(broken)))()
    findings = diagnose(broken, base=False)
    assert diagnose(broken, base=False) == findings
    with contextlib.suppress(CheckError):
        sort(broken)


@given(sound_models(), st.randoms(use_true_random=False))
@SLOW
def test_sort_mends_every_order(sound: SoundModel, random: object) -> None:
    shuffled = ModelProto()
    shuffled.CopyFrom(sound.model)
    decoded = decode(shuffled)
    graphs = [graph for top in (decoded.graph, *decoded.functions.values()) for graph in walk(top)]
    for graph in reversed(graphs):
        nodes = [type(one).FromString(one.SerializeToString()) for one in graph.proto.node]
        random.shuffle(nodes)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
        del graph.proto.node[:]
        graph.proto.node.extend(nodes)
    mended = sort(shuffled)
    assert [str(finding) for finding in diagnose(mended, base=False) if finding.is_error] == []
    assert serialize(sort(mended)) == serialize(mended)
    assert serialize(sort(sound.model)) == serialize(sound.model)

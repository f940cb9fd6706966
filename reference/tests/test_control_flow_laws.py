"""Random sound models run as the functional oracle says, in the storage that was bound, in any order of execution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from flow_models import FLOAT, value
from flow_runs import cache_names, check_runs, feed, fresh
from hypothesis import HealthCheck, given, settings
from sound_models import SoundModel, sound_models

from mutcache.errors import RunError
from mutcache.executor import Session
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import AttributeProto, GraphProto, ModelProto, NodeProto
from mutcache_conformance.cases.builder import tensor
from mutcache_conformance.oracle import OracleRefusal, run_model

SLOW = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])


def _nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for one in nodes:
        yield one
        for attribute in one.attribute:
            yield from _nodes(attribute.g.node)


def all_nodes(made: ModelProto) -> Iterator[NodeProto]:
    yield from _nodes(made.graph.node)
    for function in made.functions:
        yield from _nodes(function.node)


@st.composite
def models(draw: st.DrawFn) -> ModelProto:
    """Sound models in which some reads are views, and everything that main computes is returned."""
    sound: SoundModel = draw(sound_models())
    made = ModelProto()
    made.CopyFrom(sound.model)
    for one in all_nodes(made):
        if one.op_type == "Add" and draw(st.booleans()):
            one.op_type = "Transpose"  # NumPy's is a view
            one.attribute.add(name="perm", type=AttributeProto.INTS, ints=[0, 1])
            del one.input[draw(st.integers(0, 1))]
    _return_everything(made.graph, sound)
    return made


def _return_everything(graph: GraphProto, sound: SoundModel) -> None:
    known = {one.name for one in graph.output}
    for one in graph.node:
        for position, name in enumerate(one.output):
            if name in known or name in sound.root_of or not name:
                continue
            is_collected = one.op_type in ("Loop", "Scan") and position == len(one.output) - 1
            if one.op_type != "Shape":
                graph.output.append(tensor(name, FLOAT, [None, 8, 4]) if is_collected else value(name))


@st.composite
def feeds(draw: st.DrawFn, last: int) -> dict[str, Any]:
    return feed(p=draw(st.integers(0, last)), k=draw(st.booleans()), m=draw(st.integers(0, 3)))


@given(models(), st.lists(feeds(last=6), min_size=2, max_size=2), st.integers(0, 10**6))
@SLOW
def test_runs_are_functional_in_any_order(made: ModelProto, runs: list[dict[str, Any]], seed: int) -> None:
    check_runs(made, runs, ["node-order", f"random:{seed}"])


@given(models(), st.data(), st.integers(0, 10**6))
@SLOW
def test_after_a_failure_each_cache_holds_whole_updates(made: ModelProto, data: st.DataObject, seed: int) -> None:
    for one in all_nodes(made):  # some updates come at another position, which may be too far
        if one.op_type == "CacheUpdate" and data.draw(st.booleans()):
            one.input[2] = "m"
    runs = feed(p=0, k=data.draw(st.booleans()), m=7)
    for one in all_nodes(made):
        if one.op_type == "Loop":
            one.input[0] = "p"
    runs["p"] = np.array(data.draw(st.integers(0, 2)))
    caches = fresh(made)
    refusal = _refusal(made, {**caches, **runs})
    with Session(made, schedule=f"random:{seed}").bind(caches) as binding:
        if refusal is not None:
            with pytest.raises(RunError) as refused:
                binding.run(runs)
            assert refused.value.requirement is refusal.requirement
            for name, array in caches.items():
                assert any(np.array_equal(array, content) for content in refusal.classes[name]), name
            runs["m"] = np.array(0)
        wanted = run_model(serialize(made), {**caches, **runs})
        binding.run(runs)
        for name in cache_names(made):
            np.testing.assert_array_equal(caches[name], wanted.classes[name][-1])


def _refusal(made: ModelProto, inputs: dict[str, Any]) -> OracleRefusal | None:
    try:
        run_model(serialize(made), inputs)
    except OracleRefusal as refusal:
        return refusal
    return None

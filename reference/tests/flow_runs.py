"""Running models of ``flow_models``, compared with the functional oracle step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from mutcache.errors import RunError
from mutcache.executor import Session
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, NodeProto, ValueInfoProto
from mutcache.storage import Array
from mutcache_conformance.cases.builder import node
from mutcache_conformance.oracle import OracleRefusal, run_model

SCHEDULES = ("node-order", "random:1", "random:2", "random:3")


def viewed(source: str, output: str) -> NodeProto:
    """A node whose kernel returns a view of ``source``, with the same contents."""
    made = node("Transpose", [source], [output])
    made.attribute.add(name="perm", type=AttributeProto.INTS, ints=[0, 1])
    return made


def cache_names(made: ModelProto) -> list[str]:
    return [value.name for value in made.graph.input if value.access == ValueInfoProto.READ_WRITE]


def fresh(made: ModelProto, seed: int = 0) -> dict[str, Array]:
    """Storage for the caches; no two rows are alike."""
    random = np.random.default_rng(seed)
    return {name: random.permutation(32).reshape(8, 4).astype(np.float32) for name in cache_names(made)}


def feed(**changes: Any) -> dict[str, Any]:
    """The ordinary inputs of :func:`flow_models.graph`: two rows for position 1, ``k`` true, two trips."""
    random = np.random.default_rng(7)
    feeds: dict[str, Any] = {
        "x": random.permutation(32).reshape(8, 4).astype(np.float32),
        "r": 100 + random.permutation(8).reshape(2, 4).astype(np.float32),
        "p": np.array(1),
        "k": np.array(True),
        "m": np.array(2),
        "s": 200 + random.permutation(96).reshape(3, 8, 4).astype(np.float32),
    }
    return feeds | {
        name: np.asarray(value) if isinstance(value, (bool, int)) else value for name, value in changes.items()
    }


#: What each test runs on, one after the other on one binding: both branches; no trip, one, and more.
FEEDS = (feed(), feed(k=False, m=0, p=0), feed(k=False, m=1, p=3), feed(m=3, p=6))


def check_runs(
    made: ModelProto, runs: Iterable[Mapping[str, Any]] = FEEDS, schedules: Iterable[str] = SCHEDULES
) -> None:
    """In any order of execution, each run returns and leaves what the oracle says, in the storage that was bound.

    Nothing that an earlier run returned changes later, and outputs that are no names of a cache share no storage.
    """
    for schedule in schedules:
        caches, returned = fresh(made), []
        with Session(made, schedule=schedule).bind(caches) as binding:
            for feeds in runs:
                wanted = run_model(serialize(made), {**caches, **feeds})
                outputs = binding.run(feeds)
                for name, array in caches.items():
                    np.testing.assert_array_equal(array, wanted.classes[name][-1], err_msg=f"{name} under {schedule}")
                assert list(outputs) == list(wanted.outputs)
                for name, expected in wanted.outputs.items():
                    if name in wanted.root_of_output:
                        assert outputs[name] is caches[wanted.root_of_output[name]]
                    else:
                        assert outputs[name].dtype == expected.dtype
                        returned.append((name, outputs[name], expected))
                        for written in (*caches.values(), *feeds.values()):
                            assert not np.may_share_memory(outputs[name], written), name
        for name, array, expected in returned:
            np.testing.assert_array_equal(array, expected, err_msg=f"{name} under {schedule}", strict=True)


def check_refusal(made: ModelProto, feeds: Mapping[str, Any], schedules: Iterable[str] = SCHEDULES) -> list[RunError]:
    """The run is refused, each cache holds whole updates, and the next run is right; the errors, by schedule."""
    errors = []
    for schedule in schedules:
        caches = fresh(made)
        with pytest.raises(OracleRefusal) as refusal:
            run_model(serialize(made), {**caches, **feeds})
        with Session(made, schedule=schedule).bind(caches) as binding:
            with pytest.raises(RunError) as refused:
                binding.run(feeds)
            for name, array in caches.items():
                assert any(np.array_equal(array, content) for content in refusal.value.classes[name]), name
            assert refused.value.requirement is refusal.value.requirement
            good = feed(p=0, m=1)
            wanted = run_model(serialize(made), {**caches, **good})
            binding.run(good)
            for name, array in caches.items():
                np.testing.assert_array_equal(array, wanted.classes[name][-1])
        errors.append(refused.value)
    return errors

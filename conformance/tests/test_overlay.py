"""Overlays: the oracle says of a cache that it never sees what it would have said of one that it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mutcache.proto import parse
from mutcache_conformance.case import Case, Load, Run
from mutcache_conformance.cases import generate
from mutcache_conformance.dtypes import dtype_of
from mutcache_conformance.image import Array
from mutcache_conformance.oracle import OracleRefusal, OracleResult, run_model
from mutcache_conformance.overlay import Overlay

CASES = {case.id: case for case in generate()}
#: Models in which only updates read the cache.
PLAIN = [
    "dense-001/seed-example",
    "dense-009/overlap",
    "dense-012/chain-second-overflows",
    "dense-012/two-caches-first-overflows",
    "dense-013/axis-2-batch-1",
    "dense-014/length-is-capacity",
    "alias-005/identity",
]


def first_run(case: Case) -> tuple[bytes, dict[str, Array], dict[str, Array]]:
    """The model of a case, its caches, and what the first run is fed."""
    storages = {storage.name: storage for storage in case.storages}

    def array(name: str) -> Array:
        storage = storages[name]
        assert storage.content is not None
        return np.frombuffer(storage.content, dtype_of(storage.dtype)).reshape(storage.shape)

    model = next(case.models[step.model] for step in case.script if isinstance(step, Load))
    run = next(step for step in case.script if isinstance(step, Run))
    mutable = {value.name for value in parse(model).graph.input if value.access}
    names: dict[str, str] = next(dict(step.mutable) for step in case.script if hasattr(step, "mutable"))
    assert names.keys() == mutable
    fed = {value: array(name) for value, name in run.feeds.items()}
    return model, {value: array(name) for value, name in names.items()}, fed


def outcome(model: bytes, inputs: dict[str, Any]) -> OracleResult | OracleRefusal:
    try:
        return run_model(model, inputs)
    except OracleRefusal as refusal:
        return refusal


def applied(overlay: Overlay, base: Array) -> bytes:
    """The bytes of a cache with an overlay over them."""
    data = bytearray(base.tobytes())
    for at, element in overlay.items():
        data[at : at + len(element)] = element
    return bytes(data)


@pytest.mark.parametrize("name", PLAIN)
def test_an_overlay_over_the_old_contents_is_the_new_contents(name: str) -> None:
    model, caches, fed = first_run(CASES[name])
    held = outcome(model, {**caches, **fed})
    unseen = outcome(model, {**{root: Overlay(base.dtype, base.shape) for root, base in caches.items()}, **fed})
    assert type(held) is type(unseen)
    assert held.classes.keys() == unseen.classes.keys() == caches.keys()
    for root, base in caches.items():
        expected = [array.tobytes() for array in held.classes[root]]
        assert [applied(overlay, base) for overlay in unseen.classes[root]] == expected
    if isinstance(held, OracleResult) and isinstance(unseen, OracleResult):
        assert held.root_of_output == unseen.root_of_output
    if isinstance(held, OracleRefusal) and isinstance(unseen, OracleRefusal):
        assert held.requirement is unseen.requirement


def test_an_operator_that_would_read_the_cache_fails() -> None:
    model, caches, fed = first_run(CASES["plan-005/elementwise"])
    overlays = {root: Overlay(base.dtype, base.shape) for root, base in caches.items()}
    with pytest.raises(TypeError):
        run_model(model, {**overlays, **fed})

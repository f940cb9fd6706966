"""Lowered models compute what our executor does: in branches, loops, scans and functions, in two stock runtimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from flow_models import graph, updated, value
from flow_runs import FEEDS, fresh
from hypothesis import HealthCheck, given, settings
from onnx import checker
from onnx.reference import ReferenceEvaluator
from sound_models import SoundModel, sound_models

from mutcache.executor import Session
from mutcache.lower import lower, storage_of_outputs
from mutcache.proto import to_onnx
from mutcache.proto.onnx_ml import FunctionProto, GraphProto, ModelProto, TypeProto
from mutcache.renaming import nested_graphs
from mutcache.storage import Array

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

SLOW = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def deepened(model: ModelProto) -> ModelProto:
    """The model with a batch of 1 before the rows of every cache, for which TensorScatter is what it becomes."""
    result = ModelProto()
    result.CopyFrom(model)
    for kind in types(result):
        dims = [dim.dim_value for dim in kind.tensor_type.shape.dim]
        if dims[-2:] in ([8, 4], [2, 4]):
            kind.tensor_type.ClearField("shape")
            for size in (*dims[:-2], 1, *dims[-2:]):
                kind.tensor_type.shape.dim.add(dim_value=size)
    return result


def types(model: ModelProto) -> Iterator[TypeProto]:
    bodies: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    for body in bodies:
        for scope in (body, *nested_graphs(body.node)):
            entries = [*scope.value_info]
            if isinstance(scope, GraphProto):
                entries += [*scope.input, *scope.output]
            yield from (entry.type for entry in entries)


def deep(array: Array) -> Array:
    """An operand of the deepened model."""
    return array if array.ndim < 2 else np.expand_dims(array, -3)


def runs_of_stock(model: ModelProto) -> Iterator[tuple[str, Any]]:
    """What runs the lowered model: a function from feeds to all outputs, by name of the runtime."""
    lowered = lower(model)
    stock = to_onnx(lowered)
    checker.check_model(stock)
    scopes = [*nested_graphs(lowered.graph.node)]
    scopes += [scope for function in lowered.functions for scope in nested_graphs(function.node)]
    # ONNX Runtime 1.32 returns the initial state of a Scan whose body has one name for the state and a scan output.
    if all(len(scope.output) == len({entry.name for entry in scope.output}) for scope in scopes):
        options = ort.SessionOptions()
        options.log_severity_level = 4
        try:
            session = ort.InferenceSession(stock.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # it does not find functions that only functions call
            if "is not a registered function/op" not in str(error):
                raise
        else:
            yield "onnxruntime", lambda feeds: session.run(None, feeds)
    # The evaluator of onnx 1.23 raises when a Loop of no trips has scan outputs, and has one function for a name.
    if not lowered.functions and all(len(scope.output) == len(scope.input) - 1 for scope in scopes if len(scope.input)):
        yield "onnx.reference", lambda feeds: ReferenceEvaluator(stock).run(None, feeds)


def check_lowering(model: ModelProto, shaped: Callable[[Array], Array]) -> None:
    outputs = [entry.name for entry in model.graph.output]
    names = [entry.name for entry in model.graph.input]
    roots = storage_of_outputs(model)
    for runtime, run in runs_of_stock(model):
        ours: Mapping[str, Array] = {name: shaped(array) for name, array in fresh(model).items()}
        theirs = {name: array.copy() for name, array in ours.items()}
        with Session(model).bind(ours) as binding:
            for feeds in FEEDS:
                fed = {name: shaped(array) for name, array in feeds.items()}
                expected = binding.run(fed)
                found = dict(zip(outputs, run({name: {**fed, **theirs}[name] for name in names}), strict=True))
                for name in outputs:
                    np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name} of {runtime}")
                theirs |= {root: found[name] for name, root in roots.items()}


def flat(array: Array) -> Array:
    """An operand of the model as it is."""
    return array


@SLOW
@given(sound_models(depth=2, size=5))
def test_stock_runtimes_compute_what_the_executor_does(sound: SoundModel) -> None:
    check_lowering(sound.model, flat)


@SLOW
@given(sound_models(depth=2, size=5))
def test_they_do_with_a_batch_axis(sound: SoundModel) -> None:
    check_lowering(deepened(sound.model), deep)


def test_a_chain() -> None:
    made = graph([updated("c", "d"), updated("d", "e")], value("e", alias_of="c"))
    check_lowering(made, flat)
    check_lowering(deepened(made), deep)

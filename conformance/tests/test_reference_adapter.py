"""The options of the reference's adapter."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mutcache.errors import PlanError
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import TensorProto
from mutcache_conformance.adapters.reference import ReferenceAdapter
from mutcache_conformance.cases.builder import model, node, tensor


@pytest.mark.parametrize("options", [{}, {"schedule": "node-order"}, {"schedule": "random:7"}])
def test_a_schedule_is_taken(options: Mapping[str, str]) -> None:
    x = tensor("x", TensorProto.FLOAT, [2])
    made = model([x], [node("Neg", ["x"], ["y"])], [tensor("y", TensorProto.FLOAT, [2])])
    ReferenceAdapter(options).load(serialize(made), {}).unload()


def test_a_schedule_that_there_is_not() -> None:
    with pytest.raises(PlanError, match="there is no schedule 'fastest'"):
        ReferenceAdapter({"schedule": "fastest"})


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="no option 'schedul'"):
        ReferenceAdapter({"schedul": "random:7"})

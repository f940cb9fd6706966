"""The checker's own work grows with the model and no faster; time is not measured, executed bytecode is counted."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import mutcache
from mutcache.proto.onnx_ml import ModelProto
from mutcache_tools.bench.decoder import build


def executed_instructions(model: ModelProto) -> int:
    """How many bytecode instructions ``check_model`` executes; what C++ does inside one call is not in it."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        mutcache.check_model(model)
    finally:
        sys.settrace(before)
    return count


def test_ten_times_the_nodes_are_ten_times_the_work() -> None:
    small, large = build(4), build(43)
    mutcache.check_model(small)  # what is imported or registered once is not counted
    growth = executed_instructions(large) / executed_instructions(small)
    assert growth <= 1.1 * len(large.graph.node) / len(small.graph.node)

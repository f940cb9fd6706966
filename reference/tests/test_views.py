"""Values outside an alias class keep their contents whatever is written later (MC-PLAN-006)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from mutcache.executor import Session
from mutcache.proto import serialize
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto
from mutcache.storage import Array
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update
from mutcache_conformance.oracle import run_model

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
SHAPE = (2, 4, 3)


def int64s(name: str, *numbers: int) -> TensorProto:
    return initializer(name, INT64, [len(numbers)], np.array(numbers, np.int64).tobytes())


CONSTANTS = [
    int64s("zero", 0),
    int64s("one", 1),
    int64s("two", 2),
    int64s("three", 3),
    int64s("flat", -1),
    int64s("halves", 2, 2),
    int64s("shape", *SHAPE),
    initializer("index", INT64, [], np.array(1, np.int64).tobytes()),
]

#: Operators of which a kernel may return its input, or a view of it.
VIEWS: dict[str, list[NodeProto]] = {
    "Slice": [node("Slice", ["@", "one", "three", "one"], ["old"])],
    "Slice with steps": [node("Slice", ["@", "zero", "three", "one", "two"], ["old"])],
    "Reshape": [node("Reshape", ["@", "flat"], ["old"])],
    "Transpose": [node("Transpose", ["@"], ["old"])],
    "Split": [node("Split", ["@", "halves"], ["unused", "old"], {"axis": 1})],
    "Flatten": [node("Flatten", ["@"], ["old"])],
    "Unsqueeze": [node("Unsqueeze", ["@", "zero"], ["old"])],
    "Squeeze": [node("Slice", ["@", "one", "two", "zero"], ["part"]), node("Squeeze", ["part", "zero"], ["old"])],
    "Expand": [node("Expand", ["@", "shape"], ["old"])],
    "Gather": [node("Gather", ["@", "index"], ["old"])],
    "Identity": [node("Identity", ["@"], ["old"])],
    "Cast": [node("Cast", ["@"], ["old"], {"to": FLOAT})],
    "Dropout": [node("Dropout", ["@"], ["old"])],
    "view of a view": [node("Transpose", ["@"], ["turned"]), node("Reshape", ["turned", "flat"], ["old"])],
    "sequence": [
        node("SplitToSequence", ["@"], ["parts"], {"axis": 1}),
        node("SequenceAt", ["parts", "index"], ["old"]),
    ],
}


def reading(nodes: list[NodeProto], name: str) -> list[NodeProto]:
    """The nodes, with ``@`` replaced by ``name``."""
    made = []
    for one in nodes:
        copy = NodeProto()
        copy.CopyFrom(one)
        copy.input[:] = [name if operand == "@" else operand for operand in one.input]
        made.append(copy)
    return made


def view_model(nodes: list[NodeProto], outputs: list[str]) -> ModelProto:
    """A model of a ``cache`` with ``values`` and ``position`` that returns ``outputs``."""
    made = model(
        [
            tensor("cache", FLOAT, SHAPE, mutable=True),
            tensor("values", FLOAT, [2, 1, 3]),
            tensor("position", INT64, []),
        ],
        nodes,
        [tensor(name, FLOAT, SHAPE, alias_of="cache" if name == "updated" else "") for name in outputs],
        initializers=CONSTANTS,
    )
    feeds = {"cache": np.zeros(SHAPE, np.float32), "values": np.zeros((2, 1, 3), np.float32), "position": np.array(0)}
    for name, array in run_model(serialize(made), feeds).outputs.items():
        made.graph.output[outputs.index(name)].CopyFrom(
            tensor(name, FLOAT, array.shape, alias_of="cache" if name == "updated" else "")
        )
    return made


def check_runs(made: ModelProto, schedules: Iterable[str] = ("node-order", "random:1", "random:2")) -> None:
    """Runs give what the oracle says, in whatever order the nodes are executed."""
    for schedule in schedules:
        check_schedule(made, schedule)


def check_schedule(made: ModelProto, schedule: str, runs: int = 3) -> None:
    """Several runs of one binding give what the oracle says, and no later run changes what an earlier one returned."""
    cache = np.arange(24, dtype=np.float32).reshape(SHAPE)
    returned: list[tuple[Mapping[str, Any], dict[str, Array]]] = []
    with Session(made, schedule=schedule).bind({"cache": cache}) as binding:
        for run in range(runs):
            feeds = {"values": np.full((2, 1, 3), 100.0 + run, np.float32), "position": np.array(run)}
            before = {name: array.copy() for name, array in feeds.items()}
            expected = run_model(serialize(made), {"cache": cache, **feeds})
            outputs = binding.run(feeds)
            np.testing.assert_array_equal(cache, expected.classes["cache"][-1])
            returned.append((expected.outputs, outputs))
            for name, array in feeds.items():
                np.testing.assert_array_equal(array, before[name])
    for wanted, outputs in returned:
        assert list(outputs) == list(wanted)
        for name, array in outputs.items():
            if array is not cache:
                np.testing.assert_array_equal(array, wanted[name], err_msg=name)
                assert array.flags.owndata
                assert array.flags.writeable
                assert array.flags.c_contiguous


@pytest.mark.parametrize("nodes", VIEWS.values(), ids=VIEWS)
def test_old_contents_are_read_after_the_update(nodes: list[NodeProto]) -> None:
    made = [*reading(nodes, "cache"), update("cache", "values", "position", "updated"), node("Neg", ["old"], ["y"])]
    check_runs(view_model(made, ["y", "updated"]))


@pytest.mark.parametrize("nodes", VIEWS.values(), ids=VIEWS)
def test_old_contents_are_returned(nodes: list[NodeProto]) -> None:
    made = [*reading(nodes, "cache"), update("cache", "values", "position", "updated")]
    check_runs(view_model(made, ["old"]))


@pytest.mark.parametrize("nodes", VIEWS.values(), ids=VIEWS)
def test_new_contents_are_returned_and_kept(nodes: list[NodeProto]) -> None:
    made = [update("cache", "values", "position", "updated"), *reading(nodes, "updated")]
    check_runs(view_model(made, ["updated", "old"]))


def test_a_part_of_the_cache_is_written_elsewhere() -> None:
    made = [
        node("Slice", ["cache", "one", "three", "one"], ["rows"]),
        update("cache", "rows", "position", "moved", {"axis": 1, "mode": "circular"}),
        update("moved", "values", "position", "updated"),
    ]
    check_runs(view_model(made, ["updated", "rows"]))


def test_branches_may_return_views() -> None:
    branches = {}
    for name, source in (("then_branch", "cache"), ("else_branch", "updated")):
        body = [onnx.helper.make_node("Transpose", [source], [name])]
        outputs = [onnx.helper.make_tensor_value_info(name, FLOAT, None)]
        branches[name] = onnx.helper.make_graph(body, name, [], outputs)
    condition = node("Less", ["position", "index"], ["condition"])
    for first in ("cache", "updated"):
        choose = onnx.helper.make_node(
            "If", ["condition"], ["old"], then_branch=branches["then_branch"], else_branch=branches["else_branch"]
        )
        for attribute in choose.attribute:
            attribute.g.node[0].input[0] = first
        made = NodeProto.FromString(choose.SerializeToString())
        written = update("cache", "values", "position", "updated")
        order = [condition, made, written] if first == "cache" else [condition, written, made]
        check_runs(view_model([*order, node("Neg", ["old"], ["y"])], ["y", "old", "updated"]))


def test_outputs_share_nothing_with_feeds_constants_and_each_other() -> None:
    shapes = {
        "view": [6],
        "constant": [6],
        "fresh": [2, 3],
        "same": [6],
        "itself": [2, 3],
        "x": [2, 3],
        "weight": [2, 3],
    }
    made = model(
        [tensor("x", FLOAT, [2, 3]), tensor("weight", FLOAT, [2, 3])],
        [
            node("Reshape", ["x", "flat"], ["view"]),
            node("Reshape", ["weight", "flat"], ["constant"]),
            node("Relu", ["x"], ["fresh"]),
            node("Reshape", ["fresh", "flat"], ["same"]),
            node("Cast", ["fresh"], ["itself"], {"to": FLOAT}),
            node("Constant", [], ["made"], {"value_int": 7}),
        ],
        [*(tensor(name, FLOAT, shape) for name, shape in shapes.items()), tensor("made", INT64, [])],
        initializers=[int64s("flat", -1), initializer("weight", FLOAT, [2, 3], np.ones(6, np.float32).tobytes())],
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Session(made) as session:
        outputs = session.run({"x": x})
        kept = {name: array.copy() for name, array in outputs.items()}
        for name, array in outputs.items():
            array[...] = -5
            del kept[name]
            for other, contents in kept.items():
                np.testing.assert_array_equal(outputs[other], contents, err_msg=f"{name} is written, {other} changes")
        np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3))
        again = session.run({"x": x})
    np.testing.assert_array_equal(again["weight"], np.ones((2, 3)))
    assert again["made"] == 7


@st.composite
def programs(draw: st.DrawFn) -> ModelProto:
    """Views of views of a cache, read before and after updates, all of them returned."""
    nodes: list[NodeProto] = []
    names: list[str] = []
    current = "cache"
    for index in range(draw(st.integers(2, 10))):
        kind = draw(st.sampled_from(["update", "pass", "Transpose", "Reshape", "Slice", "Identity", "Neg", "Add"]))
        name = f"v{index}"
        if kind == "update":
            nodes.append(update(current, "values", "position", name))
            current = name
        elif kind == "pass":
            nodes.append(aliased(node("Identity", [current], [name])))
            current = name
        else:
            source = draw(st.sampled_from([current, *names]))
            operands = {
                "Reshape": [source, "flat"],
                "Slice": [source, "zero", "one", "zero"],
                "Add": [source, source],
            }.get(kind, [source])
            nodes.append(node(kind, operands, [name]))
            names.append(name)
    nodes.append(update(current, "values", "position", "updated"))
    return view_model(nodes, [*names, "updated"])


@given(programs(), st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_any_mix_of_views_and_updates_is_functional(made: ModelProto, seed: int) -> None:
    check_runs(made, ["node-order", f"random:{seed}"])

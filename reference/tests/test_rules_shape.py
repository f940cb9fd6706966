"""MC-SHAPE: types and shapes shared by a class, operands that fit, and bounds known before a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mutcache.check import diagnose
from mutcache.diagnostics import Diagnostic
from mutcache.model import Dim
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import initializer, model, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Dims = Sequence[Dim] | None


def one_update(
    *,
    cache: Dims = (2, 8, 4),
    rows: Dims = (2, 3, 4),
    position: Dims = (),
    output: Dims = (2, 8, 4),
    types: tuple[int, int, int, int] = (FLOAT, FLOAT, INT64, FLOAT),
    attributes: dict[str, int | str] | None = None,
) -> ModelProto:
    """One update of shape [2, 8, 4] along axis -2, unless said otherwise."""
    return model(
        [
            tensor("cache", types[0], cache, mutable=True),
            tensor("rows", types[1], rows),
            tensor("position", types[2], position),
        ],
        [update("cache", "rows", "position", "updated", attributes or {})],
        [tensor("updated", types[3], output, alias_of="cache")],
    )


def constant_position(made: ModelProto, *positions: int, rank: int = 0) -> ModelProto:
    """The same with the position as an initializer that no caller can change."""
    (index,) = (index for index, value in enumerate(made.graph.input) if value.name == "position")
    del made.graph.input[index]
    content = np.array(positions, "<i8").tobytes()
    made.graph.initializer.append(initializer("position", INT64, [len(positions)] if rank else [], content))
    return made


def errors(made: ModelProto) -> list[Diagnostic]:
    return [finding for finding in diagnose(made) if finding.is_error]


def requirements(made: ModelProto) -> list[Req | None]:
    return [finding.requirement for finding in errors(made)]


def test_a_sound_update_has_no_findings() -> None:
    assert diagnose(one_update()) == []
    assert diagnose(one_update(cache=("b", "n", 4), rows=("b", "k", 4), output=("b", "n", 4))) == []


def test_mc_shape_001_compares_element_types() -> None:
    (finding,) = errors(one_update(types=(FLOAT, FLOAT, INT64, TensorProto.FLOAT16)))
    assert finding.requirement is Req.MC_SHAPE_001
    assert "graph input of 'cache' says FLOAT[2, 8, 4]" in finding.message
    assert "graph output of 'updated' says FLOAT16[2, 8, 4]" in finding.message


def test_mc_shape_001_compares_kinds() -> None:
    made = one_update()
    made.graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    assert requirements(made) == [Req.MC_SHAPE_001]


def test_mc_shape_002_compares_ranks() -> None:
    assert requirements(one_update(output=(2, 8))) == [Req.MC_SHAPE_002]


@pytest.mark.parametrize("output", [(2, 9, 4), (1, 8, 4), (2, 8, 5)])
def test_mc_shape_003_compares_dimensions(output: tuple[int, ...]) -> None:
    assert requirements(one_update(output=output)) == [Req.MC_SHAPE_003]


@pytest.mark.parametrize("output", [None, (None, None, None), ("a", "b", "c"), (2, "capacity", 4)])
def test_mc_shape_003_accepts_what_leaves_dimensions_open(output: Dims) -> None:
    assert requirements(one_update(output=output)) == []


def test_mc_shape_003_sees_through_entries_of_inner_values() -> None:
    made = one_update()
    made.graph.node.append(update("updated", "rows", "position", "again"))
    made.graph.value_info.append(made.graph.output[0])
    made.graph.output[0].name = "again"
    assert requirements(made) == []
    made.graph.value_info[0].type.tensor_type.shape.dim[1].dim_value = 7
    (finding,) = errors(made)
    assert (finding.requirement, finding.where.value) == (Req.MC_SHAPE_003, "updated")


def two_caches(first: Dims, second: Dims) -> ModelProto:
    """Two caches of capacity ``n``, with updates declared as given."""
    made = one_update(cache=(2, "n", 4), output=first)
    made.graph.input.append(tensor("other", FLOAT, (2, "n", 4), mutable=True))
    made.graph.node.append(update("other", "rows", "position", "changed"))
    made.graph.output.append(tensor("changed", FLOAT, second, alias_of="other"))
    return made


def test_mc_shape_003_merges_symbols_over_classes() -> None:
    assert requirements(two_caches((2, 8, 4), (2, 8, 4))) == []
    assert requirements(two_caches((2, 8, 4), (2, "m", 4))) == []
    (finding,) = errors(two_caches((2, 8, 4), (2, 9, 4)))
    assert finding.requirement is Req.MC_SHAPE_003
    assert "n is 8 since 'cache' and 'updated' are one storage" in finding.message


def with_reader(declared: Dims) -> ModelProto:
    """The capacity stands at the output only; an earlier reader of the input declares what it reads."""
    made = one_update(cache=(2, "n", 4))
    first = made.graph.node[0]
    reader = node("Neg", ["cache"], ["negated"])
    made.graph.node.append(NodeProto.FromString(first.SerializeToString()))
    made.graph.node[0].CopyFrom(reader)
    made.graph.output.append(tensor("negated", FLOAT, declared))
    return made


def test_mc_shape_004_what_one_name_says_holds_for_readers_of_the_others() -> None:
    assert requirements(with_reader((2, 8, 4))) == []
    assert requirements(with_reader((2, "other", 4))) == []
    assert requirements(with_reader((2, 9, 4))) == [Req.MC_SHAPE_004]


def test_mc_shape_004_a_capacity_learned_from_the_output_bounds_the_update() -> None:
    made = constant_position(one_update(cache=(2, "n", 4)), 6)
    assert requirements(made) == [Req.MC_SHAPE_005]
    assert requirements(constant_position(one_update(cache=(2, "n", 4), output=(2, "m", 4)), 6)) == []


INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("position", "length", "message"),
    [
        (5, 3, ""),
        (6, 3, "position 6 + length 3 > capacity 8"),
        (8, 0, ""),
        (9, 0, "position 9 + length 0 > capacity 8"),
        (-1, 3, "position -1 < 0"),
        (-(2**63), 0, f"position {-(2**63)} < 0"),
        (INT64_MAX, 3, f"position {INT64_MAX} + length 3 > capacity 8"),
        (0, 8, ""),
        (0, 9, "length 9 > capacity 8"),
    ],
)
def test_mc_shape_005_judges_constant_positions(position: int, length: int, message: str) -> None:
    found = errors(constant_position(one_update(rows=(2, length, 4)), position))
    assert [(finding.requirement, finding.message) for finding in found] == (
        [(Req.MC_SHAPE_005, message)] if message else []
    )


@pytest.mark.parametrize(("position", "length", "sound"), [(7, 3, True), (800, 8, True), (0, 9, False), (-1, 1, False)])
def test_mc_shape_005_in_circular_mode_bounds_the_length_only(position: int, length: int, sound: bool) -> None:
    made = constant_position(one_update(rows=(2, length, 4), attributes={"mode": "circular"}), position)
    assert requirements(made) == ([] if sound else [Req.MC_SHAPE_005])


def test_mc_shape_005_judges_every_row() -> None:
    attributes: dict[str, int | str] = {"batch_axis": 0}
    assert requirements(constant_position(one_update(attributes=attributes), 5, 0, rank=1)) == []
    (finding,) = errors(constant_position(one_update(attributes=attributes), 0, 6, rank=1))
    assert finding.message == "position 6 + length 3 > capacity 8"
    assert requirements(constant_position(one_update(attributes=attributes), 5, -1, rank=1)) == [Req.MC_SHAPE_005]


def test_mc_shape_005_knows_no_value_that_a_caller_may_replace() -> None:
    made = constant_position(one_update(), 6)
    made.graph.input.append(tensor("position", INT64, ()))
    assert requirements(made) == []


def test_mc_shape_005_knows_constant_nodes() -> None:
    made = one_update()
    del made.graph.input[2]
    kept = NodeProto.FromString(made.graph.node[0].SerializeToString())
    made.graph.node[0].CopyFrom(node("Constant", [], ["position"], {"value_int": 6}))
    made.graph.node.append(kept)
    assert requirements(made) == [Req.MC_SHAPE_005]
    made.graph.node[0].attribute[0].i = 5
    assert requirements(made) == []


def test_mc_shape_005_bounds_lengths_that_are_inferred() -> None:
    made = constant_position(one_update(), 5)
    made.graph.input[1].CopyFrom(tensor("half", FLOAT, (2, 2, 4)))
    kept = NodeProto.FromString(made.graph.node[0].SerializeToString())
    made.graph.node[0].CopyFrom(node("Concat", ["half", "half"], ["rows"], {"axis": 1}))
    made.graph.node.append(kept)
    assert [finding.message for finding in errors(made)] == ["position 5 + length 4 > capacity 8"]


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": (3, 4)},
        {"rows": (2, 3, 5)},
        {"rows": (1, 3, 4)},
        {"position": (1,)},
        {"position": (1, 1)},
        {"types": (FLOAT, FLOAT, TensorProto.INT32, FLOAT)},
        {"types": (FLOAT, TensorProto.FLOAT16, INT64, FLOAT)},
        {"attributes": {"axis": 3}},
        {"attributes": {"axis": -4}},
        {"attributes": {"axis": 2**63 - 1}},
        {"attributes": {"mode": "sideways"}},
        {"attributes": {"batch_axis": 0}},
        {"attributes": {"batch_axis": 3}, "position": (2,)},
        {"attributes": {"batch_axis": 1}, "position": (8,)},
        {"attributes": {"batch_axis": -2}, "position": (8,)},
        {"attributes": {"batch_axis": 0}, "position": (3,)},
        {"attributes": {"batch_axis": 0}, "position": (2, 1)},
        {"cache": (), "rows": (), "output": ()},
    ],
    ids=str,
)
def test_mc_shape_006_rejects_operands_that_do_not_fit(changes: dict[str, object]) -> None:
    assert requirements(one_update(**changes)) == [Req.MC_SHAPE_006]  # type: ignore[arg-type]  # rows of a table


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": ("batch", "length", 4)},
        {"rows": None},
        {"position": None},
        {"cache": None, "output": None},
        {"attributes": {"axis": 1}},
        {"attributes": {"axis": 0}, "rows": (1, 8, 4)},
        {"attributes": {"batch_axis": 0}, "position": (2,)},
        {"attributes": {"batch_axis": -3}, "position": ("batch",)},
        {"cache": (8,), "rows": (3,), "output": (8,), "attributes": {"axis": 0}},
        {"cache": (0, 8, 4), "rows": (0, 3, 4), "output": (0, 8, 4)},
        {"cache": (2, -1, 4), "output": (2, -1, 4)},
    ],
    ids=str,
)
def test_mc_shape_006_accepts_operands_that_may_fit(changes: dict[str, object]) -> None:
    made = one_update(**changes)  # type: ignore[arg-type]  # rows of a table
    assert [f for f in errors(made) if f.requirement is not None] == []


def test_a_node_that_a_rule_rejects_does_not_hide_what_else_stock_onnx_rejects() -> None:
    made = one_update(rows=(2, 3, 5))
    made.graph.node.append(node("MatMul", ["rows", "rows"], ["product"]))
    made.graph.output.append(tensor("product", FLOAT, (None, None, None)))
    found = errors(made)
    assert [finding.requirement for finding in found] == [Req.MC_SHAPE_006, None]
    assert "MatMul" in found[1].message

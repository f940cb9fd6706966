"""The execution plan: lifetimes, views that must be copied, and what no plan can be made of."""

from __future__ import annotations

import onnx
import pytest

from mutcache.decode import decode
from mutcache.errors import CheckError, PlanError
from mutcache.plan import ExecutionPlan, Lifetime, plan
from mutcache.proto.onnx_ml import ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, model, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def cache_model(nodes: list[NodeProto], outputs: list[ValueInfoProto], *more: ValueInfoProto) -> ModelProto:
    """A model with a mutable ``cache``, ``values`` and ``position``."""
    return model(
        [
            tensor("cache", FLOAT, [4, 2], mutable=True),
            tensor("values", FLOAT, [1, 2]),
            tensor("position", INT64, []),
            *more,
        ],
        nodes,
        outputs,
    )


def planned(nodes: list[NodeProto], outputs: list[ValueInfoProto], *more: ValueInfoProto) -> ExecutionPlan:
    """The plan of such a model; the checker is not asked."""
    return plan(decode(cache_model(nodes, outputs, *more)))


def copies(made: ExecutionPlan) -> set[str]:
    return {name for step in made.steps for name in step.copies}


WRITE = update("cache", "values", "position", "updated")
UPDATED = tensor("updated", FLOAT, [4, 2], alias_of="cache")


def test_every_node_is_a_step_in_node_order() -> None:
    made = planned(
        [node("Neg", ["values"], ["unread"]), WRITE, node("Neg", ["updated"], ["y"])], [tensor("y", FLOAT, None)]
    )
    assert [step.node.op_type for step in made.steps] == ["Neg", "CacheUpdate", "Neg"]
    assert made.mutable == ("cache",)
    assert made.steps[1].aliases == {"updated": "cache"}


def test_values_are_released_after_their_last_use() -> None:
    made = planned(
        [
            node("Neg", ["values"], ["a"]),
            node("Neg", ["a"], ["b"]),
            node("Add", ["a", "b"], ["y"]),
            node("Neg", ["b"], ["unread"]),
            WRITE,
        ],
        [tensor("y", FLOAT, None), UPDATED],
    )
    assert [step.releases for step in made.steps] == [(), (), ("a",), ("b", "unread"), ()]
    assert made.lifetimes["a"] == Lifetime(0, 2)
    assert made.lifetimes["values"] == Lifetime(-1, 4)
    assert made.lifetimes["y"] == Lifetime(2, None)
    assert "cache" not in made.lifetimes
    assert "updated" not in made.lifetimes


def test_a_read_before_the_update_may_stay_a_view() -> None:
    made = planned([node("Neg", ["cache"], ["old"]), node("Neg", ["old"], ["a"]), WRITE], [UPDATED])
    assert copies(made) == set()


def test_a_view_that_is_used_after_the_update_is_copied() -> None:
    made = planned(
        [node("Neg", ["cache"], ["old"]), WRITE, node("Add", ["old", "updated"], ["y"])], [tensor("y", FLOAT, None)]
    )
    assert copies(made) == {"old", "y"}


def test_only_the_view_that_lives_long_is_copied() -> None:
    made = planned(
        [
            node("Neg", ["cache"], ["first"]),
            node("Neg", ["first"], ["second"]),  # perhaps a view of a view
            WRITE,
            node("Neg", ["second"], ["third"]),
            node("Neg", ["third"], ["y"]),
        ],
        [tensor("y", FLOAT, None)],
    )
    assert copies(made) == {"second"}


def test_an_operand_of_the_update_itself_is_copied() -> None:
    made = planned([node("Neg", ["cache"], ["old"]), update("cache", "old", "position", "updated")], [UPDATED])
    assert copies(made) == {"old"}


def test_a_read_between_two_updates_counts_from_its_own_version() -> None:
    made = planned(
        [
            WRITE,
            node("Neg", ["updated"], ["between"]),
            node("Neg", ["between"], ["a"]),
            update("updated", "values", "position", "last"),
            node("Neg", ["a"], ["b"]),
        ],
        [tensor("last", FLOAT, [4, 2], alias_of="cache")],
    )
    assert copies(made) == {"a"}


def test_a_graph_output_never_stays_a_view() -> None:
    made = planned([WRITE, node("Neg", ["updated"], ["y"])], [UPDATED, tensor("y", FLOAT, None)])
    assert copies(made) == {"y"}


def test_another_class_does_not_count() -> None:
    made = planned(
        [node("Neg", ["other"], ["old"]), WRITE, node("Neg", ["old"], ["a"])],
        [UPDATED],
        tensor("other", FLOAT, [4, 2], mutable=True),
    )
    assert copies(made) == set()


def test_captures_are_uses() -> None:
    branch = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["old"], ["branch"])],
        "branch",
        [],
        [onnx.helper.make_tensor_value_info("branch", FLOAT, None)],
    )
    stock = onnx.helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch)
    choose = NodeProto.FromString(stock.SerializeToString())
    made = planned(
        [node("Neg", ["cache"], ["old"]), WRITE, choose],
        [UPDATED, tensor("y", FLOAT, None)],
        tensor("condition", TensorProto.BOOL, []),
    )
    assert made.steps[2].reads == ("condition", "old")
    assert made.lifetimes["old"] == Lifetime(0, 2)
    assert copies(made) == {"old"}


def test_a_model_is_checked_first() -> None:
    with pytest.raises(CheckError):
        plan(cache_model([update("values", "values", "position", "updated")], [tensor("updated", FLOAT, None)]))


@pytest.mark.parametrize(
    "made",
    [
        aliased(node("Relu", ["cache"], ["updated"])),
        aliased(node("ScatterND", ["cache", "position", "values"], ["updated"])),
        aliased(node("Add", ["values", "cache"], ["updated"]), 0, 1),
        aliased(node("CacheUpdate", ["cache", "values", "position"], ["updated"], domain="somewhere.else")),
    ],
    ids=["Relu", "ScatterND", "second input", "another domain"],
)
def test_an_alias_without_a_kernel_has_no_plan(made: NodeProto) -> None:
    with pytest.raises(PlanError, match="'updated' the storage of 'cache'") as refused:
        planned([made], [UPDATED])
    assert refused.value.requirement is Req.MC_ALIAS_015


def test_bodies_have_plans_of_their_own() -> None:
    branch = onnx.helper.make_graph([], "branch", [], [onnx.helper.make_tensor_value_info("branch", FLOAT, [4, 2])])
    stock = onnx.helper.make_node("If", ["condition"], ["updated"], then_branch=branch, else_branch=branch)
    choose = NodeProto.FromString(stock.SerializeToString())
    for attribute in choose.attribute:
        attribute.g.node.append(node("Neg", ["values"], ["fresh"]))
        attribute.g.node.append(update("cache", "fresh", "position", "branch"))
        attribute.g.output[0].alias_of = "cache"
    [step] = planned([choose], [UPDATED], tensor("condition", TensorProto.BOOL, [])).steps
    assert step.aliases == {"updated": "cache"}
    assert step.writes == ("updated",)
    assert set(step.bodies) == {"then_branch", "else_branch"}
    for body in step.bodies.values():
        assert [inner.node.op_type for inner in body.steps] == ["Neg", "CacheUpdate"]
        assert body.steps[1].aliases == {"branch": "cache"}
        assert body.steps[1].releases == ("fresh",)
        assert body.lifetimes == {"fresh": Lifetime(0, 1)}


def test_what_is_no_cache_has_no_plan() -> None:
    tensors = ValueInfoProto(name="cache", access=ValueInfoProto.READ_WRITE)
    tensors.type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    with pytest.raises(PlanError, match="'cache' is no cache"):
        plan(decode(model([tensors], [], [])))

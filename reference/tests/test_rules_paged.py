"""MC-PAGED at load: page types, operands, and bounds that are known before a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from flow_models import body, branch, call, function
from paged_models import (
    FLOAT,
    FLOAT16,
    INT64,
    PACKED,
    constant,
    container,
    gather,
    gather_model,
    identity,
    packed_int8,
    paged_model,
    paged_update,
    scalar,
    static_int8,
    with_types,
)

from mutcache import Severity, check_model, diagnose
from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto.onnx_ml import ModelProto, QuantizationProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor


def errors(made: ModelProto) -> list[Req | None]:
    return [found.requirement for found in diagnose(made) if found.is_error]


def found(made: ModelProto, requirement: Req, severity: Severity = Severity.ERROR) -> list[str]:
    return [one.message for one in diagnose(made) if one.requirement is requirement and one.severity is severity]


def constants(made: ModelProto, **values: int) -> ModelProto:
    """The model with these inputs made constants."""
    kept = [value for value in made.graph.input if value.name not in values]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(constant(name, value) for name, value in values.items())
    return made


@pytest.mark.parametrize("is_map", [False, True])
@pytest.mark.parametrize("elem_type", [FLOAT, FLOAT16, TensorProto.BFLOAT16])
def test_sound_models_have_no_findings(is_map: bool, elem_type: int) -> None:
    for typed in (True, False):
        assert check_model(paged_model(elem_type=elem_type, is_map=is_map, typed=typed)) == []
        assert check_model(paged_model(elem_type=elem_type, is_map=is_map, typed=typed, allowed=[1])) == []
        assert check_model(paged_model(is_map=is_map, dims=None)) == []
        assert check_model(paged_model(is_map=is_map, dims=["h", "size", 8], values=["h", "n", 8])) == []
    assert check_model(gather_model(elem_type=elem_type, is_map=is_map)) == []


@pytest.mark.parametrize("kind", ["sequence", "map"])
def test_pages_of_every_type_pass_through_what_may_take_them(kind: str) -> None:
    """Stock onnx knows no sequences of BFLOAT16 in Identity and SequenceLength."""
    is_map = kind == "map"
    for elem_type in (TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, FLOAT):

        def pages(name: str, alias_of: str = "", mutable: bool = False) -> ValueInfoProto:
            return container(name, elem_type, is_map=is_map, alias_of=alias_of, mutable=mutable)  # noqa: B023

        nodes = [
            aliased(node("Identity", ["cache"], ["same"])),
            call("Write", ["same", "page_id", "values", "position"], ["written"]),
            gather("written", "read"),
        ]
        if not is_map:
            length = node("SequenceLength", ["written"], ["length"])
            passed = aliased(node("Identity", ["written"], ["otherwise"]))
            nodes += [
                length,
                branch(
                    ["chosen"],
                    body([paged_update("written", "then")], pages("then", "cache")),
                    body([passed], pages("otherwise", "cache")),
                ),
                node("Shape", ["read"], ["shape"]),
            ]
        result = "written" if is_map else "chosen"
        made = model(
            [
                pages("cache", mutable=True),
                scalar("page_id"),
                scalar("position"),
                tensor("values", elem_type, [2, "n", 8]),
                tensor("ids", INT64, ["k2"]),
                tensor("k", TensorProto.BOOL, []),
            ],
            nodes,
            [pages(result, "cache"), tensor("read", elem_type, [2, None, 8])],
        )
        write = function(
            "Write",
            ["table", "number", "rows", "start"],
            ["out"],
            [
                aliased(node("Identity", ["table"], ["inner"])),
                paged_update("inner", "out", "number", "rows", "start"),
            ],
            pages("table", mutable=True),
            pages("out", "table"),
        )
        made.functions.append(write)
        made.opset_import.add(domain="local", version=1)
        if all(opset.domain != DOMAIN for opset in made.opset_import):
            made.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
        made.quantizations.append(identity(elem_type))
        assert [str(one) for one in diagnose(made)] == []


@pytest.mark.parametrize("index", [4, -1, 100])
def test_allowed_types_are_declarations(index: int) -> None:
    assert errors(paged_model(allowed=[0, index])) == [Req.MC_PAGED_006] * 2, "of the input and of the output"
    assert errors(gather_model(allowed=[index])) == [Req.MC_PAGED_006]


@pytest.mark.parametrize(("allowed", "wanted"), [([], 4), ([], -1), ([0, 2], 1), ([3], 0)])
def test_a_constant_type_is_one_that_the_container_allows(allowed: list[int], wanted: int) -> None:
    assert errors(constants(paged_model(allowed=allowed), quantized_type=wanted)) == [Req.MC_PAGED_006]
    assert errors(constants(paged_model(allowed=allowed), quantized_type=(allowed or [0])[0])) == []


def test_every_name_of_the_container_must_allow_a_type() -> None:
    made = constants(paged_model(allowed=[0, 1]), quantized_type=1)
    element = made.graph.output[0].type.sequence_type.elem_type.quantized_tensor_type
    assert errors(made) == []
    del element.allowed_quantized_type[:]
    assert errors(made) == [], "an empty list allows every type"
    element.allowed_quantized_type.append(0)
    assert errors(made) == [Req.MC_PAGED_006]


def test_a_type_that_a_branch_may_not_reach_is_a_warning() -> None:
    made = model(
        [
            container("cache", mutable=True),
            scalar("page_id"),
            scalar("position"),
            tensor("values", FLOAT, [2, "n", 8]),
            tensor("k", TensorProto.BOOL, []),
        ],
        [
            branch(
                ["u"],
                body([paged_update("cache", "then", quantized_type="nine")], container("then", alias_of="cache")),
                body([aliased(node("Identity", ["cache"], ["kept"]))], container("kept", alias_of="cache")),
            )
        ],
        [container("u", alias_of="cache")],
        initializers=[constant("nine", 9)],
    )
    made.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    with_types(made)
    assert errors(made) == []
    assert len(found(made, Req.MC_PAGED_006, Severity.WARNING)) == 1


def test_allowed_types_decode_to_the_element_type() -> None:
    types = [identity(FLOAT), static_int8(data_type=FLOAT16)]
    assert errors(paged_model(types=types)) == [], "the second may be for another container"
    assert errors(paged_model(types=types, allowed=[0, 1])) == [Req.MC_PAGED_007] * 2
    assert errors(constants(paged_model(types=types), quantized_type=1)) == [Req.MC_PAGED_007]


@pytest.mark.parametrize(
    ("dims", "fits"),
    [
        ((2, 4, 8), True),
        ((2, 4, 12), False),
        (("h", "s", 12), False),
        ((2, 4, "d"), True),
        ((2, 4), False),
        (None, True),
    ],
)
def test_allowed_types_can_have_the_shape(dims: Sequence[Any] | None, fits: bool) -> None:
    rank = 3 if dims is None else len(dims)
    made = paged_model(dims=dims, allowed=[PACKED], values=[None] * rank, axis=-2)
    assert (Req.MC_PAGED_007 in errors(made)) is not fits


def test_pages_must_decode_to_something() -> None:
    assert Req.MC_PAGED_007 in errors(gather_model(elem_type=0, types=[identity(FLOAT)]))


def test_an_element_type_that_one_name_tells_is_enough() -> None:
    made = paged_model()
    made.graph.output[0].type.sequence_type.elem_type.quantized_tensor_type.ClearField("elem_type")
    assert errors(made) == []


@pytest.mark.parametrize(
    ("types", "allowed", "axis", "is_rejected"),
    [
        ([identity(), packed_int8()], [], 2, True),
        ([identity(), packed_int8()], [0], 2, False),
        ([identity(), packed_int8()], [1], -1, True),
        ([identity(), packed_int8()], [], 1, False),
        ([identity(), packed_int8(FLOAT16)], [], 2, False),
    ],
)
def test_rows_own_whole_groups(
    types: Iterable[QuantizationProto], allowed: list[int], axis: int, is_rejected: bool
) -> None:
    made = paged_model(types=types, allowed=allowed, axis=axis, values=[None] * 3)
    assert errors(made) == [Req.MC_PAGED_013] * is_rejected


def test_rows_along_the_last_axis_own_no_bytes_of_packed_codes() -> None:
    def int4() -> QuantizationProto:
        made = static_int8()
        made.linear.storage_type, made.linear.bits = TensorProto.INT4, 4
        return made

    assert errors(paged_model(types=[int4()], axis=2, values=[None] * 3)) == [Req.MC_PAGED_013]
    assert errors(paged_model(types=[int4()], axis=0, values=[None] * 3)) == []


# Bounds.


def test_a_negative_page_id_is_rejected() -> None:
    assert errors(constants(paged_model(), page_id=-1)) == [Req.MC_PAGED_004]
    assert errors(constants(paged_model(), page_id=1 << 40)) == [], "how many pages there are, a run knows"
    made = constants(paged_model(), page_id=-1)
    made.graph.input.append(scalar("page_id"))
    assert errors(made) == [], "a default is no constant"


@pytest.mark.parametrize(
    ("position", "rows", "message"),
    [
        (-1, 1, "position -1 < 0"),
        (4, 1, "position 4 + length 1 > page size 4"),
        (0, 5, "length 5 > page size 4"),
        (None, 5, "length 5 > page size 4"),
        ((1 << 63) - 1, 4, f"position {(1 << 63) - 1} + length 4 > page size 4"),
        (3, 1, ""),
        (4, 0, ""),
        (0, "rows", ""),
        (9, None, ""),
    ],
)
def test_an_overflow_that_is_known_is_rejected(position: int | None, rows: Any, message: str) -> None:
    made = paged_model(values=(2, rows, 8))
    made = made if position is None else constants(made, position=position)
    assert found(made, Req.MC_PAGED_005) == ([message] if message else [])
    assert errors(made) == ([Req.MC_PAGED_005] if message else [])


def test_what_is_left_to_run_time_is_explained() -> None:
    explained = [one.message for one in diagnose(paged_model(), explain=True) if one.requirement is Req.MC_PAGED_005]
    assert explained == [
        "left to run time: position 'position' is no constant, the length, a size of 'values', is not known"
    ]


# Operands.


def altered(made: ModelProto, name: str, elem_type: int, dims: Sequence[Any] | None) -> ModelProto:
    for value in made.graph.input:
        if value.name == name:
            value.CopyFrom(tensor(name, elem_type, dims))
    return made


@pytest.mark.parametrize(
    ("name", "elem_type", "dims"),
    [
        ("values", FLOAT16, [2, "n", 8]),
        ("values", FLOAT, [2, 8]),
        ("values", FLOAT, [3, "n", 8]),
        ("values", FLOAT, [2, "n", 7]),
        ("page_id", INT64, [1]),
        ("page_id", TensorProto.INT32, []),
        ("position", INT64, [2]),
        ("position", FLOAT, []),
        ("quantized_type", INT64, [1, 1]),
        ("quantized_type", TensorProto.INT32, []),
    ],
)
def test_operands_of_an_update_agree(name: str, elem_type: int, dims: Sequence[Any]) -> None:
    for is_map in (False, True):
        made = altered(paged_model(is_map=is_map), name, elem_type, dims)
        assert [one.requirement for one in diagnose(made, base=False)] == [Req.MC_PAGED_017]
        assert errors(made) == [Req.MC_PAGED_017], "the base check does not find it again"


@pytest.mark.parametrize(("axis", "fits"), [(0, True), (-3, True), (3, False), (-4, False), (1 << 40, False)])
def test_the_axis_is_one_of_the_pages(axis: int, fits: bool) -> None:
    made = paged_model(allowed=[0], axis=axis, values=[None] * 3)
    assert errors(made) == ([] if fits else [Req.MC_PAGED_017])
    made = gather_model(axis=axis)
    assert errors(made) == ([] if fits else [Req.MC_PAGED_017])


@pytest.mark.parametrize(("elem_type", "dims"), [(INT64, []), (INT64, ["n", 1]), (TensorProto.INT32, ["n"])])
def test_ids_of_a_gather_are_a_vector(elem_type: int, dims: Sequence[Any]) -> None:
    assert errors(altered(gather_model(), "ids", elem_type, dims)) == [Req.MC_PAGED_017]


def test_a_function_is_judged_for_each_call() -> None:
    made = model(
        [
            container("cache", mutable=True),
            tensor("values", FLOAT, [2, "n", 8]),
            tensor("wide", FLOAT, [2, "n", 9]),
            scalar("page_id"),
        ],
        [
            call("Write", ["cache", "page_id", "values", "zero"], ["one"]),
            call("Write", ["one", "page_id", "wide", "below"], ["two"]),
        ],
        [container("two", alias_of="cache")],
        initializers=[constant("zero", 0), constant("below", -1)],
    )
    made.functions.append(
        function(
            "Write",
            ["table", "number", "rows", "start"],
            ["written"],
            [paged_update("table", "written", "number", "rows", "start")],
            container("table", dims=None, mutable=True),
            container("written", dims=None, alias_of="table"),
        )
    )
    made.opset_import.add(domain="local", version=1)
    made.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    with_types(made)
    assert errors(made) == [Req.MC_PAGED_005, Req.MC_PAGED_017]
    assert "called by local::Write (#1) of main" in found(made, Req.MC_PAGED_005)[0]


def test_the_contract_of_the_alias_holds_for_pages() -> None:
    made = paged_model()
    del made.graph.node[0].output_alias[:]
    assert Req.MC_ALIAS_015 in errors(made)
    made = paged_model()
    made.graph.node.append(gather("cache", "late", "ids"))
    made.graph.input.append(tensor("ids", INT64, ["n"]))
    made.graph.output.append(tensor("late", FLOAT, [None] * 3))
    assert errors(made) == [Req.MC_ALIAS_011], "a stale read"
    made = paged_model()
    made.graph.input[0].ClearField("access")
    assert Req.MC_ALIAS_010 in errors(made)


def test_names_of_one_container_agree() -> None:
    made = paged_model()
    made.graph.output[0].CopyFrom(container("updated", dims=(2, 5, 8), alias_of="cache"))
    assert errors(made) == [Req.MC_SHAPE_003]
    made.graph.output[0].CopyFrom(container("updated", is_map=True, alias_of="cache"))
    assert errors(made) == [Req.MC_SHAPE_001]


@pytest.mark.parametrize("inputs", [[], ["cache"], ["cache", "", "", ""], ["", "page_id", "values", "position"]])
def test_updates_without_operands_are_the_base_check_s(inputs: list[str]) -> None:
    made = paged_model()
    del made.graph.node[0].input[:]
    made.graph.node[0].input.extend(inputs)
    assert errors(made)
    assert not {Req.MC_PAGED_004, Req.MC_PAGED_005, Req.MC_PAGED_017} & set(errors(made))


def test_a_dense_update_of_pages_and_a_paged_update_of_a_tensor_are_rejected() -> None:
    made = paged_model(typed=False)
    made.graph.node[0].op_type = "CacheUpdate"
    assert errors(made)
    made = paged_model()
    made.graph.input[0].CopyFrom(tensor("cache", FLOAT, [2, 4, 8], mutable=True))
    made.graph.output[0].CopyFrom(tensor("updated", FLOAT, [2, 4, 8], alias_of="cache"))
    assert errors(made)


def test_inference_tells_what_a_gather_returns() -> None:
    made = gather_model()
    made.graph.input[1].CopyFrom(tensor("ids", INT64, [3]))
    made.graph.output[0].CopyFrom(tensor("pages", FLOAT, [2, 12, 8]))
    assert errors(made) == []
    made.graph.output[0].CopyFrom(tensor("pages", FLOAT, [2, 13, 8]))
    assert errors(made) == [None]
    made.graph.initializer.append(initializer("unused", INT64, [1], bytes(8)))
    made.graph.output[0].CopyFrom(tensor("pages", FLOAT16, [2, 12, 8]))
    assert errors(made) == [None]

"""MC-QUANT-006: declarations that pages may have, each beside a sound model one field away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from quantization_models import T, codebook, identity, linear, packed

from mutcache.check import diagnose
from mutcache.diagnostics import Diagnostic
from mutcache.model import DOMAIN
from mutcache.proto.onnx_ml import ModelProto, QuantizationProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_conformance.cases.builder import aliased, model, node, tensor


def pages(name: str, allowed: Sequence[int], *, container: str = "sequence", **annotations: object) -> ValueInfoProto:
    value = ValueInfoProto(name=name)
    inner = value.type.sequence_type.elem_type if container == "sequence" else value.type.map_type.value_type
    if container == "map":
        value.type.map_type.key_type = T.INT64
    page = inner.quantized_tensor_type
    page.elem_type = T.FLOAT16
    page.allowed_quantized_type.extend(allowed)
    for dim in (2, 8, 64):
        page.shape.dim.add().dim_value = dim
    for field, content in annotations.items():
        setattr(value, field, content)
    return value


def paged(
    declarations: Sequence[QuantizationProto], allowed: Sequence[int] = (), container: str = "sequence"
) -> ModelProto:
    """One update of a page; sound if the declarations are."""
    update = node("PagedCacheUpdate", ["cache", "page", "rows", "at"], ["updated"], {"axis": 1}, domain=DOMAIN)
    made = model(
        [
            pages("cache", allowed, container=container, access=ValueInfoProto.READ_WRITE),
            tensor("page", T.INT64, []),
            tensor("rows", T.FLOAT16, [2, 1, 64]),
            tensor("at", T.INT64, []),
        ],
        [aliased(update)],
        [pages("updated", allowed, container=container, alias_of="cache")],
    )
    made.quantizations.extend(declarations)
    return made


def findings(made: ModelProto) -> list[Diagnostic]:
    return [found for found in diagnose(made) if found.requirement is Req.MC_QUANT_006]


SOUND = packed("INT8", "FLOAT16", axis=2)


@pytest.mark.parametrize("container", ["sequence", "map"])
def test_accepted_declarations_are_no_finding(container: str) -> None:
    assert findings(paged([SOUND, identity(), linear("INT8", 0.5)], container=container)) == []


@pytest.mark.parametrize("container", ["sequence", "map"])
@pytest.mark.parametrize("allowed", [[], [1], [0, 1]])
def test_a_refused_declaration_is_named_with_its_reason(container: str, allowed: list[int]) -> None:
    found = findings(paged([SOUND, codebook()], allowed, container))
    assert [finding.message for finding in found] == [
        "quantizations[1] (codebook) is not accepted: kind codebook is not accepted"
    ]
    assert found[0].is_error
    assert found[0].hint


def test_each_refused_declaration_is_a_finding_of_its_own() -> None:
    found = findings(paged([packed("INT4", "FLOAT8E8M0", block=3), SOUND, QuantizationProto()]))
    assert [finding.message.split(":")[0] for finding in found] == [
        "quantizations[0] (packed_linear) is not accepted",
        "quantizations[2] (no kind) is not accepted",
    ]
    assert "12 bits, not whole bytes; scale_type FLOAT8E8M0 is not" in found[0].message


@pytest.mark.parametrize("allowed", [[0], [0, 7], [-1, 0]])
def test_a_declaration_that_no_page_may_have_is_not_judged(allowed: list[int]) -> None:
    assert findings(paged([SOUND, codebook()], allowed)) == []


def test_a_model_without_containers_may_declare_anything() -> None:
    made = model([tensor("x", T.FLOAT, [2])], [node("Neg", ["x"], ["y"])], [tensor("y", T.FLOAT, [2])])
    made.quantizations.append(codebook())
    assert findings(made) == []


def in_value_info(made: ModelProto) -> None:
    made.graph.value_info.append(pages("between", []))


def in_a_function(made: ModelProto) -> None:
    function = made.functions.add(domain="local", name="unused", input=["x"], output=["y"])
    function.node.append(node("Identity", ["x"], ["y"]))
    function.value_info.append(pages("x", [1]))


@pytest.mark.parametrize("place", [in_value_info, in_a_function])
def test_every_type_of_the_model_counts(place: Callable[[ModelProto], None]) -> None:
    made = paged([SOUND, codebook()], [0])
    assert findings(made) == []
    place(made)
    assert len(findings(made)) == 1

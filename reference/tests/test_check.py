"""The whole check: all findings, then one error; files and external data; and no model that it cannot survive."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import numpy_helper

from mutcache.check import check_model, diagnose
from mutcache.diagnostics import Severity
from mutcache.errors import CheckError, DecodeError
from mutcache.proto import load, parse, save, serialize, to_onnx
from mutcache.proto.onnx_ml import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.rules import RULES
from mutcache.transform import sort
from mutcache_conformance.cases.builder import aliased, initializer, model, node, tensor, update

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
DECODER = Path(__file__).parents[2].parent / "shared" / "models" / "llama_torch23.onnx"


def decoder() -> ModelProto:
    """The model example of the specification, with a chain, a reader of the old content and a branch beside it."""
    shape = (2, "batch", "heads", "max_length", "head_size")
    rows = (2, "batch", "heads", "new_length", "head_size")
    branch = node("If", ["condition"], ["chosen"])
    for attribute in ("then_branch", "else_branch"):
        body = branch.attribute.add(name=attribute, type=onnx.AttributeProto.GRAPH).g
        body.name = attribute
        body.node.append(node("Neg", ["values"], [attribute]))
        body.output.append(tensor(attribute, TensorProto.FLOAT16, rows))
    return model(
        [
            tensor("cache", TensorProto.FLOAT16, shape, mutable=True),
            tensor("values", TensorProto.FLOAT16, rows),
            tensor("position", INT64, ()),
            tensor("condition", TensorProto.BOOL, ()),
        ],
        [
            node("Neg", ["cache"], ["before"]),
            branch,
            update("cache", "chosen", "position", "first"),
            aliased(node("Identity", ["first"], ["same"])),
            update("same", "values", "start", "updated_cache"),
        ],
        [
            tensor("updated_cache", TensorProto.FLOAT16, shape, alias_of="cache"),
            tensor("before", TensorProto.FLOAT16, shape),
        ],
        initializers=[initializer("start", INT64, [], bytes(8))],
        value_info=[tensor("first", TensorProto.FLOAT16, None, alias_of="cache")],
    )


def broken_twice() -> ModelProto:
    made = decoder()
    made.graph.output[0].alias_of = ""
    made.graph.input[2].type.tensor_type.elem_type = TensorProto.INT32
    made.graph.input.append(tensor("spare", FLOAT, (3,), mutable=True))
    return made


def test_a_sound_model_has_no_findings_and_is_not_modified() -> None:
    made = decoder()
    before = serialize(made)
    assert check_model(made) == []
    assert serialize(made) == before


def test_all_findings_are_reported_and_then_one_error_is_raised() -> None:
    with pytest.raises(CheckError) as caught:
        check_model(broken_twice())
    assert [finding.requirement for finding in caught.value.diagnostics] == [
        Req.MC_ALIAS_009,
        Req.MC_ACCESS_004,
        Req.MC_SHAPE_006,
    ]
    assert caught.value.requirement is Req.MC_ALIAS_009


def test_warnings_are_returned() -> None:
    made = decoder()
    made.graph.input.append(tensor("spare", FLOAT, (3,), mutable=True))
    (finding,) = check_model(made)
    assert (finding.requirement, finding.severity) == (Req.MC_ACCESS_004, Severity.WARNING)


def test_every_rule_is_named_after_its_requirement_and_says_what_it_demands() -> None:
    for requirement, rule in RULES.items():
        assert rule.__name__.startswith(requirement.value.lower().replace("-", "_"))
        assert rule.__doc__


BASE_FAULTS: dict[str, Callable[[ModelProto], object]] = {
    "cyclic": lambda m: m.graph.node[0].input.__setitem__(0, "before"),
    "undefined": lambda m: m.graph.node[0].input.__setitem__(0, "nowhere"),
    "defined-twice": lambda m: m.graph.node.append(m.graph.node[1]),
    "no-opset": lambda m: m.opset_import.pop(0),
    "type-error": lambda m: setattr(m.graph.output[1].type.tensor_type, "elem_type", TensorProto.STRING),
    "rank-error": lambda m: m.graph.output[1].type.tensor_type.shape.dim.add(),
    "future-version": lambda m: setattr(m, "ir_version", 99),
}


@pytest.mark.parametrize("fault", BASE_FAULTS)
def test_what_stock_onnx_rejects_is_one_finding_without_requirement(fault: str) -> None:
    made = decoder()
    BASE_FAULTS[fault](made)
    assert [(f.requirement, f.is_error) for f in diagnose(made)] == [(None, True)]
    assert diagnose(made, base=False) == []


def test_the_operators_domain_has_one_version() -> None:
    made = decoder()
    assert made.opset_import[1].domain == "onnx.mutable_cache"
    made.opset_import[1].version = 2
    (finding,) = diagnose(made)
    assert finding.is_error
    assert "version 2" in finding.message


@pytest.mark.parametrize("op_type", ["Neg", "Unknown"])
def test_an_unannotated_model_gets_the_verdict_of_stock_onnx(op_type: str) -> None:
    made = model([tensor("x", FLOAT, (2,))], [node(op_type, ["x"], ["y"])], [tensor("y", FLOAT, (2,))], ir_version=10)
    try:
        onnx.checker.check_model(to_onnx(made), full_check=True)
    except onnx.checker.ValidationError:
        stock = False
    else:
        stock = True
    assert stock == (op_type == "Neg")
    assert (diagnose(made) == []) == stock


@pytest.mark.skipif(not DECODER.exists(), reason="needs the exported decoder beside the repository")
def test_an_exported_decoder_is_sound() -> None:
    assert check_model(DECODER) == []


def with_weights(count: int = 1 << 17) -> ModelProto:
    made = decoder()
    weights = numpy_helper.from_array(np.arange(count, dtype=np.float32), "weights")
    made.graph.initializer.add().ParseFromString(weights.SerializeToString())
    constant = numpy_helper.from_array(np.arange(1024, dtype=np.float32), "inside")
    added = made.graph.node.add(op_type="Constant", output=["inside"])
    value = added.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    value.t.ParseFromString(constant.SerializeToString())
    return made


def test_external_data_is_looked_for_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    save(with_weights(), folder / "model.onnx", external_data="weights.bin")
    assert check_model(folder / "model.onnx") == []
    monkeypatch.chdir(folder)
    assert check_model("model.onnx") == []
    assert check_model(load("model.onnx")) == []


@pytest.mark.parametrize("damage", ["missing", "short", "escape"])
def test_external_data_that_cannot_be_read_is_a_decode_error(tmp_path: Path, damage: str) -> None:
    save(with_weights(), tmp_path / "model.onnx", external_data="weights.bin")
    if damage == "missing":
        (tmp_path / "weights.bin").unlink()
    elif damage == "short":
        (tmp_path / "weights.bin").write_bytes(bytes(1000))
    else:
        content = (tmp_path / "model.onnx").read_bytes()
        (tmp_path / "inner").mkdir()
        (tmp_path / "inner" / "model.onnx").write_bytes(content.replace(b"weights.bin", b"../weights."))
    path = tmp_path / ("inner" if damage == "escape" else "") / "model.onnx"
    with pytest.raises(DecodeError, match="external data"):
        check_model(path)


def test_a_file_that_is_no_model_is_a_decode_error(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x0f\xff\xff")
    with pytest.raises(DecodeError):
        check_model(tmp_path / "model.onnx")
    with pytest.raises(DecodeError):
        check_model(tmp_path / "absent.onnx")


def test_the_bytes_of_large_initializers_are_checked_too() -> None:
    made = with_weights()
    assert diagnose(made) == []
    made.graph.initializer[-1].dims[0] += 1
    assert [finding.requirement for finding in diagnose(made)] == [None]


def test_a_model_nested_deeper_than_protobuf_reads_is_refused() -> None:
    made = decoder()
    graph = made.graph
    for _ in range(3000):
        graph = graph.node.add(op_type="If").attribute.add(name="then_branch").g
        graph.node.append(update("cache", "values", "position", "u"))
    for attempt in (diagnose, sort):
        with pytest.raises(DecodeError, match="nests"):
            attempt(made)


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_no_model_is_beyond_a_verdict(seed: int, count: int) -> None:
    """Fields of a sound model are set to anything; the check ends with findings or a DecodeError."""
    made = decoder()
    draw = random.Random(seed)
    for _ in range(count):
        scramble(made, draw)
    for attempt in (diagnose, sort):
        with contextlib.suppress(CheckError, DecodeError):
            attempt(made)


@given(st.binary(max_size=200), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_no_bytes_are_beyond_a_verdict(noise: bytes, at: int) -> None:
    """Bytes of a sound model are overwritten."""
    content = bytearray(serialize(decoder()))
    start = at % len(content)
    content[start : start + len(noise)] = noise
    with contextlib.suppress(DecodeError):
        diagnose(parse(bytes(content)))


NAMES = ("", "cache", "first", "same", "updated_cache", "values", "position", "before", "nowhere", "condition")
NUMBERS = (-(2**31), -1, 0, 1, 2, 7, 2**31 - 1)
SIZES = (-(2**63), -1, 0, 1, 3, 2**31, 2**63 - 1)
OPERATORS = ("CacheUpdate", "Identity", "Shape", "If", "Loop", "PagedCacheUpdate", "Constant", "")


def scramble(made: ModelProto, draw: random.Random) -> None:
    """Change one thing at random."""
    graph = made.graph
    values: list[ValueInfoProto] = [*graph.input, *graph.output, *graph.value_info]
    value, one = draw.choice(values), draw.choice(list(graph.node))
    match draw.randrange(16):
        case 0:
            value.name = draw.choice(NAMES)
        case 1:
            value.alias_of = draw.choice(NAMES)
        case 2:
            value.MergeFromString(draw.choice([b"\x28\x01", b"\x28\x00", b"\x28\x09", b"\x2a\x00"]))
        case 3:
            value.ClearField("type")
        case 4:
            value.type.tensor_type.elem_type = draw.choice(NUMBERS)
        case 5:
            value.type.tensor_type.shape.dim.add(dim_value=draw.choice(SIZES))
        case 6:
            value.type.sequence_type.elem_type.quantized_tensor_type.elem_type = draw.choice(NUMBERS)
        case 7:
            operands = draw.choice([one.input, one.output])
            if operands:
                operands[draw.randrange(len(operands))] = draw.choice(NAMES)
        case 8:
            draw.choice([one.input, one.output]).append(draw.choice(NAMES))
        case 9:
            one.output_alias.add(
                output_index=draw.choice(NUMBERS), input_index=draw.choice(NUMBERS), kind=draw.choice([0, 1])
            )
        case 10:
            one.op_type, one.domain = (
                draw.choice(OPERATORS),
                draw.choice(["", "ai.onnx", "onnx.mutable_cache", "local"]),
            )
        case 11:
            kind = draw.choice(list(AttributeProto.AttributeType.values()))
            attribute = one.attribute.add(name=draw.choice(["axis", "mode", "batch_axis", "value", "body"]), type=kind)
            attribute.i, attribute.s = draw.choice(SIZES), b"\xff"
            attribute.t.dims.append(draw.choice(SIZES))
        case 12:
            graph.node.insert(draw.randrange(len(graph.node) + 1), NodeProto.FromString(one.SerializeToString()))
        case 13:
            body = one.attribute.add(name="body", type=5).g
            body.node.append(update(draw.choice(NAMES), draw.choice(NAMES), "position", draw.choice(NAMES)))
            body.output.add(name=draw.choice(NAMES), alias_of=draw.choice(NAMES))
        case 14:
            added = graph.initializer.add(name=draw.choice(NAMES), data_type=draw.choice([0, 1, 7, 8, 99]))
            added.dims.extend(draw.choice(SIZES) for _ in range(draw.randrange(3)))
        case _:
            function = made.functions.add(domain="local", name=draw.choice(OPERATORS))
            function.input.append(draw.choice(NAMES))
            function.node.append(NodeProto.FromString(one.SerializeToString()))
            function.value_info.add(name=draw.choice(NAMES), alias_of=draw.choice(NAMES))


@pytest.mark.parametrize("value", [None, 7, onnx.ModelProto()], ids=["none", "number", "stock"])
def test_what_is_no_model_is_a_decode_error(value: object) -> None:
    with pytest.raises(DecodeError, match=r"expected a mutcache ModelProto, got .* \(hint: .*from_onnx"):
        check_model(value)  # type: ignore[arg-type]  # what a caller may do


def test_external_data_in_a_folder_is_no_file(tmp_path: Path) -> None:
    proto = ModelProto(ir_version=10)
    proto.opset_import.add(version=20)
    proto.graph.name = "external"
    weight = proto.graph.initializer.add(name="weight", data_type=1, data_location=1, dims=[4])
    weight.external_data.add(key="location", value="folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(DecodeError, match="no regular file"):
        check_model(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("op_type", "hint"), [("CacheUpdat", "did you mean CacheUpdate?"), ("Nope", "it has CacheUpdate, ")]
)
def test_an_operator_that_this_domain_does_not_have_is_found(op_type: str, hint: str) -> None:
    values = [tensor("values", FLOAT, (1, 2)), tensor("position", INT64, ())]
    made = model(
        [tensor("cache", FLOAT, (4, 2), mutable=True), *values],
        [update("cache", "values", "position", "updated")],
        [tensor("updated", FLOAT, (4, 2), alias_of="cache")],
    )
    assert diagnose(made) == []
    made.graph.node[0].op_type = op_type
    found = [finding for finding in diagnose(made) if "has no operator" in finding.message]
    assert [(finding.requirement, finding.is_error) for finding in found] == [(None, True)]
    assert found[0].hint.startswith(hint)


def test_a_mutable_input_says_its_type() -> None:
    made = model([tensor("cache", FLOAT, (4,), mutable=True)], [], [])
    assert not [finding for finding in diagnose(made) if finding.requirement is Req.MC_ACCESS_003]
    made.graph.input[0].ClearField("type")
    assert [finding.message for finding in diagnose(made) if finding.requirement is Req.MC_ACCESS_003] == [
        "READ_WRITE input 'cache' is without a type"
    ]

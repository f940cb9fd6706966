"""The numbers in the specification's examples are what the reference computes. The text has the expected values."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import mutcache
from mutcache.proto.onnx_ml import ModelProto, QuantizationProto
from mutcache.quantization import n_bytes, parse_declaration

SPEC = Path(__file__).parents[2] / "spec"


def text(chapter: str) -> str:
    return (SPEC / chapter).read_text(encoding="utf-8")


# CacheUpdate


def numbers(line: str) -> list[int]:
    return [int(word) for word in re.findall(r"-?\d+", line)]


def dense(mode: str) -> ModelProto:
    node = helper.make_node(
        "CacheUpdate",
        ["cache", "values", "position"],
        ["updated_cache"],
        domain=mutcache.DOMAIN,
        axis=1,
        batch_axis=0,
        mode=mode,
    )
    graph = helper.make_graph(
        [node],
        "example",
        [
            helper.make_tensor_value_info("cache", TensorProto.INT32, [2, 5, 1]),
            helper.make_tensor_value_info("values", TensorProto.INT32, [2, 2, 1]),
            helper.make_tensor_value_info("position", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("updated_cache", TensorProto.INT32, [2, 5, 1])],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(mutcache.DOMAIN, 1)]
    model = mutcache.from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=mutcache.IR_VERSION))
    model.graph.input[0].access = mutcache.READ_WRITE
    model.graph.node[0].output_alias.add(output_index=0, input_index=0, kind=mutcache.MUST_ALIAS)
    model.graph.output[0].alias_of = "cache"
    return model


def dense_result(mode: str, position: list[int]) -> list[list[int]]:
    storage = np.array([[10, 11, 12, 13, 14], [20, 21, 22, 23, 24]], np.int32)[..., None]
    values = np.array([[1, 2], [3, 4]], np.int32)[..., None]
    with mutcache.Session(dense(mode)).bind({"cache": storage}) as binding:
        binding.run({"values": values, "position": np.array(position, np.int64)})
    rows: list[list[int]] = storage[..., 0].tolist()
    return rows


@pytest.mark.parametrize(
    ("mode", "position", "shown"),
    [
        ("linear", [1, 3], ["[[10  1  2 13 14]", "[20 21 22  3  4]]"]),
        ("circular", [1, 3], ["[[10  1  2 13 14]", "[20 21 22  3  4]]"]),
        ("circular", [4, 3], ["[[ 2 11 12 13  1]", "[20 21 22  3  4]]"]),
    ],
)
def test_the_example_of_cache_update(mode: str, position: list[int], shown: list[str]) -> None:
    chapter = text("08-dense.rst")
    assert all(row in chapter for row in ["[[10 11 12 13 14]", "[20 21 22 23 24]]", "[[1 2]", "[3 4]]", *shown])
    assert dense_result(mode, position) == [numbers(row) for row in shown]


def test_the_update_that_is_not_valid() -> None:
    assert "position = [1 4] is not valid in linear mode, since 4 + 2 > 5" in text("08-dense.rst")
    with pytest.raises(mutcache.RunError, match=r"4 \+ length 2 of 'values' > capacity 5"):
        dense_result("linear", [1, 4])


# PagedCacheUpdate


def paged(length: int, quantized_type: bool) -> ModelProto:
    """The model of one update of the example, which gathers page 0 twice, too."""
    inputs = ["cache", "page_id", "values", "position", *(["quantized_type"] if quantized_type else [])]
    nodes = [
        helper.make_node("PagedCacheUpdate", inputs, ["updated_cache"], domain=mutcache.DOMAIN),
        helper.make_node("PagedCacheGather", ["updated_cache", "page_ids"], ["pages"], domain=mutcache.DOMAIN),
    ]
    graph = helper.make_graph(
        nodes,
        "example",
        [
            helper.make_tensor_value_info("cache", TensorProto.FLOAT16, None),
            helper.make_tensor_value_info("page_id", TensorProto.INT64, []),
            helper.make_tensor_value_info("values", TensorProto.FLOAT16, [1, length, 2]),
            helper.make_tensor_value_info("position", TensorProto.INT64, []),
            helper.make_tensor_value_info("page_ids", TensorProto.INT64, [2]),
            *([helper.make_tensor_value_info("quantized_type", TensorProto.INT64, [])] if quantized_type else []),
        ],
        [
            helper.make_tensor_value_info("updated_cache", TensorProto.FLOAT16, None),
            helper.make_tensor_value_info("pages", TensorProto.FLOAT16, [1, 8, 2]),
        ],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(mutcache.DOMAIN, 1)]
    model = mutcache.from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=mutcache.IR_VERSION))
    linear = model.quantizations.add(data_type=TensorProto.FLOAT16).linear
    linear.storage_type, linear.bits, linear.symmetric, linear.scale_float = TensorProto.INT8, 8, True, 0.5
    model.quantizations.add(data_type=TensorProto.FLOAT16).identity.SetInParent()
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.Clear()
        element = info.type.sequence_type.elem_type.quantized_tensor_type
        element.elem_type = TensorProto.FLOAT16
        for size in (1, 4, 2):
            element.shape.dim.add(dim_value=size)
    model.graph.input[0].access = mutcache.READ_WRITE
    model.graph.node[0].output_alias.add(output_index=0, input_index=0, kind=mutcache.MUST_ALIAS)
    model.graph.output[0].alias_of = "cache"
    return model


def payloads() -> list[bytes]:
    example = text("09-paged.rst").partition("what the page's payload is after them")[2]
    return [bytes.fromhex(row) for row in re.findall(r"position \d[^\n]*?((?: +[0-9a-f]{2}){8,})\n", example)]


def test_the_example_of_pages() -> None:
    steps = [([[[1, -2]]], 1, 0), ([[[0.3, 100]]], 2, None), (np.empty((1, 0, 2)), 0, 1)]
    shown = payloads()
    assert len(shown) == len(steps)
    pages: list[mutcache.Page] = []
    for (values, position, quantized_type), payload in zip(steps, shown, strict=True):
        rows = np.array(values, np.float16)
        model = paged(rows.shape[1], quantized_type is not None)
        table = mutcache.PageTable(pages, model=model, value="cache")
        feeds = {"page_id": 0, "values": rows, "position": position, "page_ids": np.zeros(2, np.int64)}
        if quantized_type is not None:
            feeds["quantized_type"] = quantized_type
        with mutcache.Session(model).bind({"cache": table}) as binding:
            outputs = binding.run(feeds)
        assert table[0].payload.tobytes() == payload
        pages = list(table.values())
    assert outputs["pages"].tolist() == [[[0, 0], [1, -2], [0.5, 63.5], [0, 0]] * 2]


# Page codecs


@pytest.mark.parametrize(
    ("storage", "scale", "correction", "shown"),
    [
        ("INT8", "FLOAT16", None, "34 bytes instead of 64 as INT8"),
        ("INT4", "FLOAT16", None, "18 as INT4"),
        ("FLOAT4E2M1", "FLOAT8E8M0", None, "17 as FLOAT4E2M1"),
        ("INT2", "FLOAT16", None, "10 as\nINT2"),
        ("UINT2", "FLOAT16", "FLOAT16", "12 as UINT2"),
    ],
)
def test_the_sizes_of_groups(storage: str, scale: str, correction: str | None, shown: str) -> None:
    assert shown in text("10-quant.rst")
    declaration = QuantizationProto(data_type=TensorProto.FLOAT16)
    packed = declaration.packed_linear
    packed.storage_type = TensorProto.DataType.Value(storage)
    packed.bits = {"INT8": 8, "INT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}[storage]
    packed.symmetric = correction is None
    packed.block_size, packed.axis, packed.scale_type = 32, 0, TensorProto.DataType.Value(scale)
    if correction is not None:
        packed.correction_type = TensorProto.DataType.Value(correction)
    assert n_bytes(parse_declaration(declaration), (32,)) == int(re.findall(r"\d+", shown)[0])


def test_why_decoding_clamps() -> None:
    assert "as INT8 its scale rounds to 516, and 127 * 516 is 65532" in " ".join(text("10-quant.rst").split())
    scale = np.float16(np.float32(65504) / np.float32(127))
    assert scale == 516
    with np.errstate(over="ignore"):
        assert np.isinf(np.float32(127 * 516).astype(np.float16))


def test_what_is_too_small_for_a_scale_of_one_byte() -> None:
    assert "6 * 2**-10" in text("10-quant.rst")
    largest = np.float32(6 * 2.0**-10)
    assert np.float32(largest / 6).astype(ml_dtypes.float8_e4m3fn) == 0
    assert np.nextafter(largest / 6, np.float32(1)).astype(ml_dtypes.float8_e4m3fn) != 0

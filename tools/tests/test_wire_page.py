"""``proto/WIRE.md``, against what stock onnx and protobuf's own parser make of the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from mutcache.check import check_model
from mutcache.proto import parse
from mutcache.proto.onnx_ml import ModelProto
from mutcache_tools.generate import wire

PAGE = (Path(__file__).parents[2] / "proto" / "WIRE.md").read_text(encoding="utf-8")
WHOLE, FIELDS = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
DATA = bytes.fromhex(WHOLE)


def test_the_bytes_are_a_sound_model() -> None:
    assert check_model(parse(DATA)) == []


def test_the_fields_are_all_the_bytes() -> None:
    rows = re.findall(r"^[+ ] +(\d+)  ((?:[0-9a-f]{2} )+)", FIELDS, re.MULTILINE)
    assert b"".join(bytes.fromhex(chunk) for _, chunk in rows) == DATA
    assert [int(offset) for offset, _ in rows] == [
        sum(len(bytes.fromhex(chunk)) for _, chunk in rows[:index]) for index in range(len(rows))
    ]


def test_without_the_marked_fields_stock_onnx_sees_the_same_model() -> None:
    stock = onnx.ModelProto.FromString(DATA)
    stock.DiscardUnknownFields()
    assert [node.op_type for node in stock.graph.node] == ["CacheUpdate"]
    kept = len(stock.SerializeToString())
    marked = re.findall(r"^\+ +\d+  ((?:[0-9a-f]{2} )+)", FIELDS, re.MULTILINE)
    shorter = 1  # without them the length of the graph fits one byte
    assert len(DATA) - kept == sum(len(bytes.fromhex(chunk)) for chunk in marked) + shorter


def test_what_is_not_of_the_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="field 99"):
        list(wire.lines(bytes([0x98, 0x06, 0x01]), ModelProto.DESCRIPTOR))

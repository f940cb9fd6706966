"""``mutcache check --format json`` follows its committed schema."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from onnx import parser

from mutcache.diagnostics import Diagnostic, Location, Severity
from mutcache.proto import from_onnx, save
from mutcache.proto.onnx_ml import ModelProto, ValueAliasProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_tools import cli

FINDING = {
    "requirement": "MC-ALIAS-007",
    "level": "MUST",
    "severity": "error",
    "graph": "main/if_1.then_branch",
    "node": "CacheUpdate 'update' (#3)",
    "value": "updated",
    "message": "a -> b -> a",
    "hint": None,
}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads((files("mutcache_tools") / "schemas" / "check.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def printed(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, Any]:
    code = cli.main(["check", str(path), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def model() -> ModelProto:
    result = from_onnx(
        parser.parse_model(
            """<ir_version: 15, opset_import: ["": 18, "onnx.mutable_cache": 1]>
            g (float[4,2] cache, float[n,2] values, int64 position) => (float[4,2] updated)
            { updated = onnx.mutable_cache.CacheUpdate(cache, values, position) }"""
        )
    )
    result.graph.input[0].access = ValueInfoProto.READ_WRITE
    result.graph.node[0].output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
    result.graph.output[0].alias_of = "cache"
    return result


def test_a_sound_model(capsys: pytest.CaptureFixture[str], tmp_path: Path, validator: Draft202012Validator) -> None:
    save(model(), tmp_path / "sound.onnx")
    code, document = printed(capsys, tmp_path / "sound.onnx")
    validator.validate(document)
    assert (code, document["diagnostics"]) == (0, [])


def test_findings_of_the_rules_and_of_stock_onnx(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, validator: Draft202012Validator
) -> None:
    broken = model()
    broken.graph.output[0].alias_of = "elsewhere"
    broken.graph.node.add(op_type="Relu", input=["undefined"], output=["y"])
    save(broken, tmp_path / "broken.onnx")
    code, document = printed(capsys, tmp_path / "broken.onnx")
    validator.validate(document)
    assert code == 1
    assert {None, "MC-ALIAS-006"} <= {finding["requirement"] for finding in document["diagnostics"]}


def test_an_unreadable_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, validator: Draft202012Validator
) -> None:
    (tmp_path / "noise.onnx").write_bytes(b"\xff\xff\xff")
    code, document = printed(capsys, tmp_path / "noise.onnx")
    validator.validate(document)
    assert code == 2
    assert set(document) == {"error"}


def test_every_diagnostic_that_can_be_made(validator: Draft202012Validator) -> None:
    findings = [
        Diagnostic(requirement, "message", where, hint, severity)
        for requirement in (None, *Req)
        for severity in Severity
        for where, hint in ((Location(), ""), (Location("local::step", "Add (#0)", "x"), "mend it"))
    ]
    validator.validate({"model": "m.onnx", "diagnostics": [finding.to_json() for finding in findings]})


@pytest.mark.parametrize(
    "change",
    [
        {"requirement": "ALIAS-007"},
        {"requirement": None},  # then it has no level either
        {"level": None},
        {"severity": "fatal"},
        {"graph": ""},
        {"hint": ""},
        {"line": 3},
    ],
    ids=str,
)
def test_what_the_command_never_prints(change: dict[str, Any], validator: Draft202012Validator) -> None:
    document: dict[str, Any] = {"model": "m.onnx", "diagnostics": [copy.deepcopy(FINDING)]}
    validator.validate(document)
    document["diagnostics"][0].update(change)
    assert not validator.is_valid(document)

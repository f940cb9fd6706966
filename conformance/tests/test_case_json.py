"""Cases as JSON and as folders."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from toy_cases import CASES, OVERFLOW, VALID

from mutcache_conformance import case_json
from mutcache_conformance.case import Case, Storage
from mutcache_conformance.cases import generate
from mutcache_conformance.schema import validate

RICH = dataclasses.replace(
    VALID,
    id="toy-050/rich",
    storages=(
        *VALID.storages,
        Storage("big", 3, (1 << 32,)),
        Storage("odd", 1, (2, 2), bytes(16), (8, 4), misalignment=1, origin="initializer:w", within="cache", offset=-4),
    ),
)


@pytest.mark.parametrize("case", [*CASES.values(), RICH], ids=lambda case: case.id)
def test_a_saved_case_is_the_same_case(tmp_path: Path, case: Case) -> None:
    case_json.save(case, tmp_path)
    loaded = case_json.load(tmp_path)
    assert loaded == case
    assert case_json.digest(loaded) == case_json.digest(case)


def test_every_case_of_the_corpus_follows_the_schema() -> None:
    for case in generate():
        validate(case_json.to_json(case), "case")


def test_the_digest_stands_for_every_byte() -> None:
    changed = [
        VALID,
        OVERFLOW,
        dataclasses.replace(VALID, title="Another toy."),
        dataclasses.replace(VALID, models={"model": VALID.models["model"] + b"\0"}),
        dataclasses.replace(VALID, script=VALID.script[:-1]),
        dataclasses.replace(
            VALID, storages=(dataclasses.replace(VALID.storages[0], alignment=32), *VALID.storages[1:])
        ),
        dataclasses.replace(
            VALID, storages=(dataclasses.replace(VALID.storages[0], content=None), *VALID.storages[1:])
        ),
    ]
    assert len({case_json.digest(case) for case in changed}) == len(changed)


@pytest.mark.parametrize("name", ["model.onnx", "cache.bin"])
def test_a_changed_file_is_noticed(tmp_path: Path, name: str) -> None:
    case_json.save(VALID, tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match="its SHA-256 differs"):
        case_json.load(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    case_json.save(VALID, tmp_path)
    data = json.loads((tmp_path / "case.json").read_text())
    (tmp_path / "case.json").write_text(json.dumps({**data, "format": 2}))
    with pytest.raises(ValueError, match=r"is no case: \$\.format: 1 was expected"):
        case_json.load(tmp_path)

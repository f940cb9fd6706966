"""The record of the specification's versions, changes and reviews."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mutcache.requirements import Req
from mutcache_tools import spec_history

ONE, TWO = "MC-ALIAS-001", "MC-ALIAS-002"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose specification has two requirements, published and reviewed."""
    (tmp_path / "spec").mkdir()
    monkeypatch.setattr(spec_history, "texts", lambda: {ONE: "1", TWO: "2"})
    spec_history.publish("1", tmp_path, date="2026-01-01")
    spec_history.review([ONE, TWO], tmp_path)
    return tmp_path


def now(monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    monkeypatch.setattr(spec_history, "texts", lambda: {key.replace("_", "-"): text for key, text in texts.items()})


def record(root: Path, requirement: str, kind: str, why: str = "it was unclear") -> None:
    with (root / spec_history.CHANGES).open("a", encoding="utf-8") as file:
        file.write(f'[[change]]\nrequirement = "{requirement}"\nkind = "{kind}"\nwhy = "{why}"\n\n')


def test_the_checkout_records_everything() -> None:
    assert list(spec_history.problems()) == []


def test_nothing_is_owed_right_after_publication(root: Path) -> None:
    assert list(spec_history.problems(root)) == []
    assert [version.number for version in spec_history.versions(root)] == ["1"]


def test_a_moved_text_owes_a_reason_and_a_review(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now(monkeypatch, MC_ALIAS_001="1", MC_ALIAS_002="other")
    found = list(spec_history.problems(root))
    assert len(found) == 2
    assert f"{TWO} was reworded since version 1" in found[0]
    assert f"--reviewed {TWO}" in found[1]
    record(root, TWO, "reworded")
    spec_history.review([TWO], root)
    assert list(spec_history.problems(root)) == []
    spec_history.publish("2", root, date="2026-02-01")
    assert list(spec_history.problems(root)) == []
    assert spec_history.changes(root) == [spec_history.Change(Req(TWO), "reworded", "it was unclear", "2")]


def test_new_and_retired_requirements_owe_a_reason(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now(monkeypatch, MC_ALIAS_001="1", MC_ALIAS_003="3")
    found = [line for line in spec_history.problems(root) if line.startswith("spec/changes")]
    assert [line.split(": ")[1].split(" since ")[0] for line in found] == [
        f"{TWO} was retired",
        "MC-ALIAS-003 was added",
    ]


def test_a_reason_without_a_change_is_a_problem(root: Path) -> None:
    record(root, ONE, "reworded")
    assert [line for line in spec_history.problems(root) if f"{ONE} is said to be reworded" in line]


@pytest.mark.parametrize(("kind", "why"), [("renamed", "because"), ("added", "")])
def test_a_malformed_entry_is_refused(root: Path, kind: str, why: str) -> None:
    record(root, ONE, kind, why)
    with pytest.raises(ValueError, match="an entry has requirement, kind"):
        list(spec_history.problems(root))


def test_a_version_is_published_once(root: Path) -> None:
    with pytest.raises(ValueError, match="published already"):
        spec_history.publish("1", root)
    assert len(json.loads((root / spec_history.VERSIONS).read_text())["versions"]) == 1

"""The adapter in ``docs/first-adapter.rst`` does what the page says of it."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path

import pytest

from mutcache_conformance.adapters import command_of
from mutcache_conformance.cases import generate
from mutcache_conformance.runner import Configuration, Runner
from mutcache_conformance.status import Status

PAGE = (Path(__file__).parents[2] / "docs" / "first-adapter.rst").read_text(encoding="utf-8")
CODE = textwrap.dedent(re.findall(r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)", PAGE, flags=re.MULTILINE)[0])
PASSES, FAILS = (re.findall(r"``([a-z]+-\d{3}/[\w-]+)``", part) for part in PAGE.split("What it fails"))
#: Saved cases that the page replays.
REPLAYED = re.findall(r"failures/([a-z]+-\d{3}/[\w-]+)", PAGE)


def test_it_is_short() -> None:
    lines = [line for line in CODE.splitlines() if line.strip()]
    assert len(lines) < 60
    assert max(map(len, lines)) <= 100


def test_it_passes_and_fails_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_adapter.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    cases = {case.id: case for case in generate()}
    with Runner(Configuration(command_of("my_adapter:MyAdapter"), tmp_path), cases) as runner:
        statuses = {name: runner.run(cases[name]).status for name in (*PASSES, *FAILS)}
    for name in REPLAYED:
        assert (tmp_path / "failures" / name / "case.json").is_file()
    assert len(PASSES) >= 4
    assert len(FAILS) >= 3
    assert REPLAYED
    assert statuses == dict.fromkeys(PASSES, Status.PASS) | dict.fromkeys(FAILS, Status.FAIL)

"""How tests run a command: in this process, as ``mutcache`` would, and never to a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mutcache_tools import cli


@dataclass(frozen=True)
class Result:
    """The exit code of a command, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Result]


@pytest.fixture
def mutcache(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command in a folder of its own, and sees to it that no refusal is a traceback."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Result:
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Result(code, captured.out, captured.err)

    return run

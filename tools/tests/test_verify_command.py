"""What ``mutcache verify`` prints of a report that anybody can have made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mutcache_conformance import manifest
from mutcache_tools.cli import main
from mutcache_tools.output import Format, Output


def test_words_of_a_report_forge_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest.write(tmp_path)
    (tmp_path / "\x1b[2J\nreport: sound\N{RIGHT-TO-LEFT OVERRIDE}").touch()
    (tmp_path / "report.json").write_text(json.dumps({"\x1b[2J\n": 1}))
    assert main(["verify", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("report: sound") for line in lines)
    assert any("report: sound" in line and "is not in the manifest" in line for line in lines)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_no_color_is_no_style(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_wanted: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not is_wanted:
        monkeypatch.setenv("NO_COLOR", "1")
    Output(Format.TEXT).line(("word", "bold"), ("word", "dim"))
    assert ("\x1b" in capsys.readouterr().out) is is_wanted

"""The command as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from mutcache_tools import example_decoder


def run(*arguments: object, folder: Path, script: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command with this interpreter's import path, in a narrow terminal that is none."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "30"}
    command = ["-c", script] if script else ["-m", "mutcache_tools", *map(str, arguments)]
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_decoder_is_written_converted_checked_and_run(tmp_path: Path) -> None:
    written = subprocess.run(
        [sys.executable, "-m", "mutcache_tools.example_decoder", "decoder.onnx"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
        check=True,
    )
    assert written.returncode == 0
    assert run("convert", "decoder.onnx", "mutable.onnx", "--max-length", 16, folder=tmp_path).returncode == 0
    checked = run("check", "mutable.onnx", "--format", "json", folder=tmp_path)
    assert checked.returncode == 0
    assert json.loads(checked.stdout) == {"model": "mutable.onnx", "diagnostics": []}
    tokens = [
        run("greedy", name, "--prompt", 1, 5, 9, 7, "--tokens", 6, folder=tmp_path).stdout.splitlines()[0]
        for name in ("decoder.onnx", "mutable.onnx")
    ]
    assert tokens[0] == tokens[1]
    assert len(tokens[0].split()) == 6


def test_findings_are_never_wrapped_or_styled_in_a_pipe(tmp_path: Path) -> None:
    model = example_decoder.build()
    model.graph.node[0].op_type = "[red]NoSuchOperator[/red]"
    onnx.save(model, tmp_path / "bad.onnx")
    result = run("check", "bad.onnx", folder=tmp_path)
    assert result.returncode == 1
    assert "[red]NoSuchOperator[/red]" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_reader_that_leaves_is_no_error_message(tmp_path: Path) -> None:
    onnx.save(example_decoder.build(), tmp_path / "decoder.onnx")
    for form in ("text", "json"):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            result = subprocess.run(
                [sys.executable, "-m", "mutcache_tools", "check", "decoder.onnx", "--format", form],
                cwd=tmp_path,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=writing,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            os.close(writing)
        assert (result.returncode, result.stderr) == (141, "")


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys; from mutcache_tools import cli; from mutcache_tools.commands import commands;"
        "cli.parser(commands()).format_help();"
        "print(sorted({'onnx', 'numpy', 'rich', 'google', 'mutcache'} & {name.split('.')[0] for name in sys.modules}))"
    )
    result = run(folder=tmp_path, script=script)
    assert (result.returncode, result.stdout.strip()) == (0, "[]")


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_exit_with_zero(tmp_path: Path, option: str) -> None:
    result = run(option, folder=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith("mutcache " if option == "--version" else "usage: mutcache")

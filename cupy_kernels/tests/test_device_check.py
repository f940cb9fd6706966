"""The check of a device, on the CPU in its place: all but the launches."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases import host, needs_compiler

from mutcache_cupy import device_check
from mutcache_cupy.benchmark import benchmark
from mutcache_cupy.device_check import main, run, table
from mutcache_cupy.equality import check_equality
from mutcache_cupy.host import HostDevice

pytestmark = needs_compiler


class Flawed(HostDevice):
    """A device that changes a byte behind every launch of some kernel."""

    def __init__(self, kernel: str) -> None:
        super().__init__()
        self._flawed = kernel
        self._last: Any = None

    def empty(self, nbytes: int) -> Any:
        self._last = super().empty(nbytes)
        return self._last

    def download(self, array: Any) -> Any:
        found = super().download(array)
        if self._is_due and found.size > 8:
            found[-1] ^= 1
            self._is_due = False
        return found

    _is_due = False

    def launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        super().launch(kernel, grid, table, status)
        self._is_due = kernel == self._flawed


def test_equality_and_benchmark(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert main(["--device", "host", "--small", "--part", "equality", "--part", "benchmark", "--json", str(path)]) == 0
    results = json.loads(path.read_text(encoding="utf-8"))
    assert results["device"] == "host shim"
    assert results["equality"]["wrong"] == []
    assert results["equality"]["checked"] > 1000
    names = [row["name"] for row in results["benchmark"]["rows"]]
    assert names[0] == "device copy"
    assert "decode step, 4 pages, graph replay" in names
    assert len(names) == len(set(names)) == 20
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)


@pytest.mark.parametrize("kernel", ["dense_update", "encode_symmetric_8_f16", "gather", "reencode", "step"])
def test_a_wrong_byte_is_found(kernel: str) -> None:
    found = check_equality(Flawed(kernel), small=True)
    assert not found["is_right"]
    assert any(kernel in name or kernel == "reencode" for name in found["wrong"])
    assert "wrong" in table({"device": "d", "seconds": 1, "equality": found})


def test_a_benchmark_that_has_no_time_says_what_is_missing() -> None:
    found = benchmark(host(), small=True, seconds=-1.0)
    assert "INT4, groups of 32" in found["skipped"]
    assert found["rows"][0]["name"] == "device copy"


def test_parts_that_no_time_is_left_for_are_told() -> None:
    seconds = itertools.count(0, 400)
    results = run(host(), ["sanitizer", "suite"], clock=lambda: float(next(seconds)))
    assert results["suite"] == results["sanitizer"] == {"skipped": "no time left"}
    assert results["is_right"]
    assert "suite: no time left" in table(results)


def test_parts_in_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\necho "$2"\nexit $((9 * ($(echo $2 | wc -c) > 9)))\n', encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = device_check.sanitize(60)
    assert found["memcheck"]["exit"] == 0
    assert found["racecheck"]["exit"] == 9
    assert not found["is_right"]
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert device_check.run_suite(60)["exit"] == 1
    tool.unlink()
    assert device_check.sanitize(60) == {"skipped": "compute-sanitizer is not installed"}


def test_without_a_device_it_ends_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("device_check: CuPy is not installed")
    assert printed.err.count("\n") == 1


def test_uploads_are_copies() -> None:
    array = np.arange(4, dtype=np.int64)
    on_device = host().upload(array)
    array[0] = 9
    assert host().download(on_device).view(np.int64).tolist() == [0, 1, 2, 3]

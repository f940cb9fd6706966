"""The check of a device, on the CPU in its place: all but the launches."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases import host, needs_compiler

from mutcache_cupy import device_check
from mutcache_cupy.benchmark import benchmark
from mutcache_cupy.device_check import BUDGET, LIMITS, PARTS, main, run_parts, table
from mutcache_cupy.equality import check_equality
from mutcache_cupy.figures import committed, predictions
from mutcache_cupy.host import HostDevice
from mutcache_cupy.session_check import check_session

pytestmark = needs_compiler


class Flawed(HostDevice):
    """A device that changes a byte behind every launch of some kernel."""

    def __init__(self, kernel: str) -> None:
        super().__init__()
        self._flawed = kernel
        self._is_due = False

    def launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        super().launch(kernel, grid, table, status)
        self._is_due = kernel == self._flawed

    def download(self, array: Any) -> Any:
        return self._changed(super().download(array))

    def read(self, address: int, nbytes: int) -> Any:
        return self._changed(super().read(address, nbytes))

    def _changed(self, found: Any) -> Any:
        if self._is_due and found.size > 8:
            found[-1] ^= 1
            self._is_due = False
        return found


def test_all_that_needs_no_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    parts = ["equality", "session", "benchmark"]
    arguments = ["--device", "host", "--small", *(f"--part={part}" for part in parts), "--json", str(path)]
    assert main(arguments) == 0
    results = json.loads(path.read_text(encoding="utf-8"))
    assert [name for name in PARTS if name in results] == ["device", *parts]
    assert results["device"]["name"] == "host shim"
    assert results["is_right"]
    assert results["equality"]["wrong"] == results["session"]["wrong"] == []
    assert results["equality"]["checked"] > 1000
    assert results["session"]["refused"] > 3
    rows = {row["name"]: row for row in results["benchmark"]["rows"]}
    assert len(rows) == len(results["benchmark"]["rows"]) == 22
    assert next(iter(rows)) == "device copy"
    assert "decode step, 4 pages, graph replay" in rows
    assert {"share", "predicted", "goal", "is_met"} <= rows["INT4, groups of 32"].keys()
    assert sum("predicted" in row for row in rows.values()) == len(predictions(committed()))
    printed = capsys.readouterr().out
    assert all(name in printed for name in rows)


@pytest.mark.parametrize("kernel", ["dense_update", "encode_symmetric_8_f16", "gather", "reencode", "step"])
def test_a_wrong_byte_is_found(kernel: str) -> None:
    found = check_equality(Flawed(kernel), small=True)
    assert not found["is_right"]
    assert any(kernel in name or kernel == "reencode" for name in found["wrong"])
    results = {"device": {"name": "d"}, "seconds": 1, "equality": found}
    assert f"equality: WRONG, {found['checked']} checked\n  wrong: {found['wrong'][0]}" in table(results)


def test_a_session_that_goes_wrong_is_told() -> None:
    *_, found = check_session(Flawed("dense_update"), turns=9)
    assert not found["is_right"]
    assert found["wrong"][0].startswith("run ")


def test_a_benchmark_that_has_no_time_says_what_is_missing() -> None:
    *_, found = benchmark(host(), small=True, seconds=-1.0)
    assert "INT4, groups of 32" in found["skipped"]
    assert found["rows"][0]["name"] == "device copy"


def test_parts_share_the_budget_and_are_told_as_they_end() -> None:
    now = 0.0
    seen, asked = list[dict[str, Any]](), dict[str, float]()

    def run_part(part: str, seconds: float) -> dict[str, Any]:
        nonlocal now
        asked[part] = seconds
        now += seconds  # a part that takes all of its time
        return {"is_right": True}

    results = run_parts(PARTS, run_part, lambda one: seen.append(dict(one)), lambda: now)
    assert sum(asked.values()) <= BUDGET
    assert all(asked[part] <= LIMITS[part] for part in asked)
    assert [len(one) for one in seen] == [3, 4, 5, 6, 7, 8]  # each of them, ``seconds`` and ``is_right``
    assert results["seconds"] <= BUDGET
    assert results["sanitizer"] == {"skipped": "no time left"}
    assert results["is_right"]
    assert "sanitizer: no time left" in table(results)


def child(monkeypatch: pytest.MonkeyPatch, end: str, seconds: float = 60.0) -> dict[str, Any]:
    """What is found of a part whose process has told something and then does ``end``."""
    told = {"equality": {"checked": 100, "wrong": [], "is_right": True}}
    code = f"import json, os, pathlib, subprocess, sys, time; path, told = pathlib.Path(sys.argv[1]), {told}; {end}"
    monkeypatch.setattr(device_check, "_command", lambda *_, path, **__: [sys.executable, "-c", code, str(path)])
    return device_check.run_apart("equality", seconds, device="host", small=True)


def test_a_part_that_hangs_is_ended_with_what_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = "sleeper = subprocess.Popen(['sleep', '600']); told['equality']['started'] = sleeper.pid"
    found = child(monkeypatch, f"{hang}; path.write_text(json.dumps(told)); sleeper.wait()", 3.0)
    assert found["checked"] == 100
    assert found["skipped"] == "not finished within 3 s"
    assert not found["is_right"]
    assert "equality: not finished within 3 s" in table({"seconds": 1, "equality": found})
    while is_alive(found["started"]):  # it is killed, and on its way
        time.sleep(0.01)


def is_alive(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_part_that_crashes_leaves_what_it_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = "path.write_text(json.dumps(told)); print('cudaErrorIllegalAddress', flush=True); os.abort()"
    found = child(monkeypatch, crash)
    assert (found["checked"], found["is_right"], found["exit"]) == (100, False, -6)
    assert "exit status -6\n    cudaErrorIllegalAddress" in table({"seconds": 1, "equality": found})
    assert child(monkeypatch, "sys.exit(2)")["unavailable"] == ""


def test_the_sanitizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\necho "$@"\n[ $2 = memcheck ] || exit 9\n', encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = device_check.sanitize(60)
    assert [found[check]["exit"] for check in ("memcheck", "initcheck", "synccheck", "racecheck")] == [0, 9, 9, 9]
    assert not found["is_right"]
    assert "--part equality" in found["memcheck"]["output"]
    assert "--small --unpooled" in found["memcheck"]["output"]
    tool.unlink()
    assert device_check.sanitize(60) == {"skipped": "compute-sanitizer is not installed"}


def test_the_suite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report: dict[str, Any] = {
        "totals": {"pass": 7, "fail": 0, "unsupported": 2},
        "results": [{"case": "dense-001/one", "status": "pass", "reason": ""}],
        "claim": {"profiles": [{"profile": "dense", "verdict": "conformant"}]},
    }
    python, written = tmp_path / "python", tmp_path / "report.json"
    python.write_text(f"#!/bin/sh\nwhile [ $1 != --out ]; do shift; done\ncp {written} $2\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    written.write_text(json.dumps(report), encoding="utf-8")
    found = device_check.run_suite(60)
    expected = {"totals": {"pass": 7, "unsupported": 2}, "profiles": {"dense": "conformant"}, "wrong": []}
    assert found == expected | {"is_right": True}
    assert "suite: right, 7 pass, 2 unsupported" in table({"seconds": 1, "suite": found})
    report["results"].append({"case": "dense-001/two", "status": "crash", "reason": "signal 11"})
    written.write_text(json.dumps(report), encoding="utf-8")
    found = device_check.run_suite(60)
    assert (found["wrong"], found["is_right"]) == (["dense-001/two: signal 11"], False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert (found := device_check.run_suite(60))["exit"] == 1
    assert not found["is_right"]


def test_without_a_device_it_ends_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('no CuPy here')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("device_check: CuPy cannot be imported (no CuPy here)")
    assert printed.err.count("\n") == 1


def test_uploads_are_copies() -> None:
    array = np.arange(4, dtype=np.int64)
    on_device = host().upload(array)
    array[0] = 9
    assert host().download(on_device).view(np.int64).tolist() == [0, 1, 2, 3]

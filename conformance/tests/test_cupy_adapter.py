"""The ``cupy`` runtime: the kernels' sources on the CPU in a device's place, and what is said where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mutcache_cupy import DeviceUnavailable, connect
from mutcache_cupy.host import compiler

ROOT = Path(__file__).parents[2]


def run_suite(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "conformance",
        "--runtime=cupy",
        "-q",
        "-n",
        "0",
        f"--report={folder}",
    ]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_cases_on_the_host_shim(tmp_path: Path) -> None:
    chosen = "dense-013 or dense-014 or (dense-003 and not gib) or flow-004 or (bind-004 and caches) or alias-014"
    done = run_suite(tmp_path, "--runtime-option", "device=host", "-k", chosen)
    assert done.returncode == 0, done.stdout
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["runtime"]["runtime"] == "mutcache CUDA kernels on host shim"
    assert "read back, and reported by the adapter" in report["runtime"]["checks"][0]
    statuses = [result["status"] for result in report["results"]]
    assert set(statuses) == {"pass"}
    assert len(statuses) > 80


def what_is_missing() -> str:
    """Why there is no device, or ""."""
    try:
        connect()
    except DeviceUnavailable as error:
        return str(error)
    return ""


@pytest.mark.skipif(not what_is_missing(), reason="there is a device")
def test_without_a_device_it_ends_with_one_line_and_exit_2(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "-k", "dense-001")
    assert done.returncode == 2
    assert done.stderr == ""
    (said,) = [line for line in done.stdout.splitlines() if "runtime 'cupy' is unavailable" in line]
    assert what_is_missing() in said
    assert "Traceback" not in done.stdout

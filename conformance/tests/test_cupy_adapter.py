"""The ``cupy`` runtime: the kernels' sources on the CPU in a device's place, and what is said where there is none."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import faulty_devices as devices
import guarded_device as guarded
import pytest
from fault_table import cases_of, runner

from mutcache_conformance.case import Case
from mutcache_conformance.status import CaseResult, Status
from mutcache_cupy import DeviceUnavailable, connect
from mutcache_cupy.host import compiler

ROOT = Path(__file__).parents[2]


#: Some of all: element types; updates of every kind; caches of more than 2 GiB; storages that overlap, are read-only,
#: strided or an initializer's; control flow; pages that are made, changed and read; memory.
CHOSEN: Final = (
    "dense-013",
    "dense-014",
    "(dense-003 and not gib)",
    "dense-001/beyond-2-gib",
    "alias-014",
    "bind-002",
    "bind-003",
    "bind-004",
    "bind-005/output",
    "bind-007",
    "bind-008",
    "bind-012",
    "bind-013",
    "flow-004",
    "paged-008",
    "(paged-010 and not thousand)",
    "paged-012",
    "paged-016",
    "quant-001",
    "mem-001/chain",
    "mem-003/map",
)


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
    done = run_suite(tmp_path, "--runtime-option", "device=host", "-k", " or ".join(CHOSEN))
    assert done.returncode == 0, done.stdout
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["runtime"]["runtime"] == "mutcache CUDA kernels on host shim"
    assert report["runtime"]["device"] == "cuda:0"
    assert "carries" in report["runtime"]["checks"][0]
    results = report["results"]
    assert {result["status"] for result in results} == {"pass"}
    areas = Counter(result["case"].partition("-")[0] for result in results)
    assert areas.keys() >= {"dense", "bind", "alias", "flow", "paged", "quant", "mem"}
    assert areas.total() > 200


def result(adapter: type[devices.SoundDevice], case: str, folder: Path) -> CaseResult:
    with runner(adapter, folder) as one:
        return one.run(cases_of(0)[case])


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("adapter", "case", "reason"),
    [
        (devices.Forgets, "dense-001/first-rows", "byte"),
        (devices.WritesBehind, "dense-001/first-rows", "guard"),
        (devices.WritesInitializers, "bind-003/caller", "table"),
        (devices.Forgets, "paged-010/between-updates", "page"),
    ],
)
def test_what_kernels_do_wrong_is_seen(
    adapter: type[devices.SoundDevice], case: str, reason: str, tmp_path: Path
) -> None:
    assert result(devices.SoundDevice, case, tmp_path / "sound").status is Status.PASS
    found = result(adapter, case, tmp_path / "faulty")
    assert found.status is Status.FAIL
    assert reason in found.reason


def is_large(case: Case) -> bool:
    """Whether a case has a large storage, or many pages."""
    return case.id == "paged-010/thousand-pages" or any(math.prod(one.shape) > 1 << 20 for one in case.storages)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_nothing_but_the_device_touches_its_memory(tmp_path: Path) -> None:
    """Some cases of every area, with their valid twins; none with much memory, which it takes long to guard."""
    cases = [case for case in cases_of(0).values() if case.measure is None and not is_large(case)]
    with runner(guarded.GuardedAdapter, tmp_path) as one:
        results = [one.run(case) for case in cases[::5]]
    wrong = [(found.case, found.reason) for found in results if found.status not in (Status.PASS, Status.UNSUPPORTED)]
    assert wrong == []
    assert len({found.case.partition("-")[0] for found in results if found.status is Status.PASS}) > 8


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

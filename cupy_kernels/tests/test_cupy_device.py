"""The device that is CuPy's, with a CuPy that has no GPU: every call, what is waited for, and what is refused."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cupy import SIGNATURES, FakeCupy, FakeError
from kernel_cases import needs_compiler

from mutcache.storage import storage_of
from mutcache_cupy import DeviceUnavailable, connect, transfers
from mutcache_cupy.cupy_device import CupyDevice
from mutcache_cupy.device_check import main, part_of
from mutcache_cupy.device_view import DeviceView, Place
from mutcache_cupy.equality import check_equality
from mutcache_cupy.nvrtc import nvrtc, target
from mutcache_cupy.step import Step

try:
    nvrtc()
except DeviceUnavailable as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = needs_compiler


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """CuPy, or what stands in its place."""
    found = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", found)
    return found


def test_the_fake_has_the_signatures_of_the_real_one() -> None:
    try:
        real = importlib.import_module("cupy")
    except Exception as error:  # whatever a CuPy without its libraries raises
        pytest.skip(f"CuPy cannot be imported: {error}")
    for name, expected in SIGNATURES.items():
        found = reduce(getattr, name.split("."), real)
        documented = (found.__doc__ or "").strip().splitlines()
        own = f"{name.split('.')[-1]}{expected[expected.index('(') :]}"
        assert any(line.startswith((expected, own)) for line in documented) or own.endswith(signature_of(found)), name


def signature_of(function: Any) -> str:
    """Of a function that is written in Python: the names of its parameters and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return str(inspect.Signature([one.replace(annotation=one.empty) for one in parameters])).replace(
        "<class 'float'>", "float"
    )


@pytest.mark.usefixtures("package")
def test_memory() -> None:
    device = connect()
    assert isinstance(device, CupyDevice)
    assert (device.name, device.architecture, device.id) == ("Fake GPU", "sm_90", 0)
    values = np.arange(6, dtype=np.float32)
    one, other = device.upload(values), device.empty(24)
    values[:] = 0  # the copy does not see it
    device.copy(other, one)
    device.fill(one, 0x11)
    assert device.download(other).view(np.float32).tolist() == list(range(6))
    assert set(device.download(one).tolist()) == {0x11}
    device.write(one, np.full(3, 7, np.int64))
    assert device.read(device.address(one) + 8, 8).view(np.int64).item() == 7
    with pytest.raises(FakeError, match="are not allocated"):
        device.read(device.address(one) + 8, 17)


@pytest.mark.usefixtures("package")
def test_memory_of_no_bytes() -> None:
    device = connect()
    view = device.view(device.empty(0), 8, np.dtype(np.int8), (0,))
    for array in (device.empty(0), device.upload(np.zeros((0, 3), np.float32)), view):
        device.fill(array, 1)
        device.copy(array, device.empty(0))
        device.write(array, np.empty(0, np.int8))
        assert device.download(array).size == 0


def test_views_of_any_type(package: FakeCupy) -> None:
    device = connect()
    buffer = device.upload(np.arange(48, dtype=np.uint8))
    halves = device.view(buffer, 8, np.dtype(np.float16), (2, 3))
    assert type(halves) is package.ndarray
    assert device.address(halves) == device.address(buffer) + 8
    np.testing.assert_array_equal(halves.get(), np.arange(8, 20, dtype=np.uint8).view(np.float16).reshape(2, 3))
    eights = device.view(buffer, 3, np.dtype(ml_dtypes.float8_e4m3fn), (5,), writable=False)
    assert eights.get().view(np.uint8).tolist() == [3, 4, 5, 6, 7]
    for view in (halves, eights):
        assert storage_of(device.adopt(view)) == storage_of(view)
    with pytest.raises(TypeError, match="is not in the memory of cuda:0"):
        device.adopt(DeviceView(None, 4096, np.dtype(np.uint8), (5,), None, Place(0), device.read))


def dense(device: Any, cache: Any, values: Any, start: Any) -> Step:
    return Step(
        device,
        [
            transfers.dense_update(
                cache=device.address(cache),
                values=device.address(values),
                positions=device.address(start),
                shape=(8, 16),
                length=2,
                itemsize=1,
            )
        ],
    )


def test_launches_are_on_the_current_stream_and_reading_waits_for_it(package: FakeCupy) -> None:
    device = connect()
    cache, values = device.upload(np.zeros(128, np.uint8)), device.upload(np.ones(32, np.uint8))
    start = device.upload(np.array(3))
    step = dense(device, cache, values, start)
    device.synchronize()
    stream = package.cuda.Stream(non_blocking=True)
    with stream:
        step.launch()
        assert package.launched == []  # nothing has waited
        assert step.refused() == {}
        assert package.launched == ["dense_update"]
    found = device.download(cache).reshape(8, 16)
    assert found[3:5].all()
    assert found.sum() == 32


@pytest.mark.usefixtures("package")
def test_a_graph_is_launched_with_new_positions() -> None:
    device = connect()
    cache, values = device.upload(np.zeros(128, np.uint8)), device.upload(np.ones(32, np.uint8))
    start = device.upload(np.array(0))
    step = dense(device, cache, values, start)
    step.launch()
    replay = device.captured(step.launch)
    device.synchronize()
    for position in (4, 6, 7):
        device.write(start, np.array(position))
        replay()
        assert bool(step.refused()) == (position == 7)
    assert np.flatnonzero(device.download(cache).reshape(8, 16).any(axis=1)).tolist() == [0, 1, 4, 5, 6, 7]


def test_elapsed_times_what_is_between_its_events(package: FakeCupy) -> None:
    device = connect()
    cache, values = device.upload(np.zeros(128, np.uint8)), device.upload(np.ones(32, np.uint8))
    start = device.upload(np.array(0))
    step = dense(device, cache, values, start)
    step.launch()

    def before() -> None:
        for _ in range(5):
            step.launch()

    assert device.elapsed(step.launch, before) == pytest.approx(2e-6)
    assert len(package.launched) == 7


@pytest.mark.usefixtures("package")
def test_every_kernel_is_right() -> None:
    assert check_equality(connect(), small=True)["wrong"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capability": "75"}, "compute capability 7.5: the kernels need 8.0 and later"),
        ({"capability": "990"}, "compute capability 99.0: NVRTC .* does not know it, install a later one"),
        ({"driver": 11080}, "the driver is for CUDA 11.8, and loads nothing that NVRTC .* compiles: update it"),
        ({"count": 0}, "CuPy finds no CUDA device: the driver lists none"),
    ],
)
def test_devices_that_kernels_cannot_run_on(
    arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(**arguments))
    with pytest.raises(DeviceUnavailable, match=message) as caught:
        connect()
    assert "\n" not in str(caught.value)


def test_binaries_run_on_later_devices_of_the_same_kind() -> None:
    assert target("87", 13000) in {"sm_86", "sm_87"}
    assert target("90", 13000) == "sm_90"


def test_a_cupy_that_cannot_be_imported_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    banner = "\n====\nFailed to import CuPy.\n\nOriginal error:\n  OSError: libcuda.so.1\n"
    (tmp_path / "cupy.py").write_text(f"raise ImportError({json.dumps(banner)})\n", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeviceUnavailable, match=r"CuPy cannot be imported \(Failed to import CuPy\.\)") as caught:
        connect()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["device", "session", "benchmark"])
def test_the_parts_of_the_check(package: FakeCupy, part: str) -> None:
    device = connect()
    *_, found = part_of(device, part, small=True)
    if part == "device":
        assert {"name": "Fake GPU", "architecture": "sm_90", "driver_cuda": "13.0"}.items() <= found.items()
    elif part == "session":
        assert found["is_right"], found["wrong"]
        assert found["refused"]
        assert {"dense_update", "step", "gather", "reencode"} & set(package.launched)
    else:
        assert found["skipped"] == []
        assert all(row["microseconds"] > 0 for row in found["rows"])
        assert {"empty", "step", "dense_update", "reencode"} <= set(package.launched)


def test_unpooled_memory(package: FakeCupy, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert main(["--here", "--part", "equality", "--small", "--unpooled", "--json", str(path)]) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["equality"]["is_right"]
    assert package.allocator == package.malloc


def test_cases_of_the_suite(tmp_path: Path) -> None:
    """The adapter as it is on a GPU: its images, its accounts of memory, and the launches of whole sessions."""
    root = Path(__file__).parents[2]
    (tmp_path / "cupy.py").write_text(
        "import sys\nfrom fake_cupy import FakeCupy\nsys.modules[__name__] = FakeCupy()\n", encoding="utf-8"
    )
    places = [str(tmp_path), str(Path(__file__).parent), *sys.path, os.environ.get("PYTHONPATH", "")]
    chosen = "dense-013 or paged-008 or paged-012 or bind-003 or bind-007 or flow-004 or quant-001"
    arguments = ["--runtime=cupy", f"--report={tmp_path / 'report'}", "-q", "-n", "0", "-k", chosen]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "conformance", *arguments],
        cwd=root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    report = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert report["runtime"]["runtime"] == "mutcache CUDA kernels on Fake GPU"
    assert {result["status"] for result in report["results"]} == {"pass"}
    assert len(report["results"]) > 50

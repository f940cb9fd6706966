"""Every kernel compiles for every architecture, and the committed figures are those of this compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutcache_cupy.device import DeviceUnavailable
from mutcache_cupy.disassembly import disassemble, figures
from mutcache_cupy.figures import COPY_RATE, ISSUE_RATE, PATH, committed, predictions, render
from mutcache_cupy.kernels import KERNELS
from mutcache_cupy.nvrtc import ARCHITECTURES, OPTIONS, Compiled, compiled, nvrtc
from mutcache_cupy.sources import UNITS

COMMITTED = committed()


def built(unit: str, architecture: str) -> Compiled:
    try:
        return compiled(unit, architecture)
    except DeviceUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("unit", UNITS)
def test_figures_are_those_of_this_compiler(unit: str, architecture: str) -> None:
    found = built(unit, architecture)
    if COMMITTED["compiler"] != f"NVRTC {nvrtc().version}":
        pytest.skip(f"the figures are of {COMMITTED['compiler']}, this is NVRTC {nvrtc().version}")
    try:
        disassembly = disassemble(found.cubin)
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    rows = {kernel: figure.to_json() for kernel, figure in figures(found, disassembly).items()}
    assert rows == {
        kernel: COMMITTED["kernels"][kernel][architecture] for kernel in KERNELS if KERNELS[kernel].unit == unit
    }


def test_the_table_has_every_kernel_on_every_architecture() -> None:
    assert COMMITTED["options"] == list(OPTIONS)
    assert sorted(COMMITTED["kernels"]) == sorted(KERNELS)
    assert all(tuple(rows) == ARCHITECTURES for rows in COMMITTED["kernels"].values())


def test_kernels_move_16_bytes_at_once_and_use_no_local_memory() -> None:
    for kernel, rows in COMMITTED["kernels"].items():
        for architecture, row in rows.items():
            loads, stores = row["wide"]
            where = f"{kernel} on {architecture}"
            assert (row["stack"], row["spills"], row["local"]) == (0, 0, 0), where
            if kernel == "empty":
                continue
            assert loads or kernel.startswith("decode_"), where
            assert stores or kernel.startswith(("encode_", "reencode")), where


def test_a_committed_table_is_rendered_as_it_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_text(render(COMMITTED), encoding="utf-8")
    assert path.read_bytes() == PATH.read_bytes()


def test_predictions_follow_from_bytes_and_instructions() -> None:
    for prediction in predictions(COMMITTED):
        time_of_bytes = (prediction.read + prediction.written) / COPY_RATE
        time_of_instructions = prediction.instructions / ISSUE_RATE
        assert prediction.share == pytest.approx(min(1.0, time_of_bytes / max(time_of_instructions, 1e-30)))
        assert prediction.instructions > 0

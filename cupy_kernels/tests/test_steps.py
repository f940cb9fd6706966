"""Steps: many transfers in one launch, tables of pages on the device, what is refused, and the registry."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_cases import host, launch, needs_compiler

from mutcache.proto.onnx_ml import TensorProto
from mutcache.quantization import Declaration, encode_rows, n_bytes
from mutcache_cupy import DeviceUnavailable, connect, transfers
from mutcache_cupy.kernels import CODECS, ELEMENTS, KERNELS
from mutcache_cupy.records import PAGE, Status, divisor, unit_of
from mutcache_cupy.samples import hostile, packed, packed_declarations, plain_declarations
from mutcache_cupy.sources import FOLDER, cached
from mutcache_cupy.step import Step, kernel_of
from mutcache_cupy.transfers import Transfer, codec_name

FLOAT16 = TensorProto.FLOAT16


@needs_compiler
def test_a_decode_step_of_dense_caches_and_pages_of_all_types() -> None:
    """One launch, launched twice with other positions: what a captured graph would replay."""
    device = host()
    rng = np.random.default_rng(0)
    declarations = [*plain_declarations(FLOAT16), *packed_declarations(FLOAT16, 32, 0, rank=3)]
    dims, length = (2, 6, 64), 1
    position = device.upload(np.array(0, np.int64))
    held, parts, expected = [], list[Transfer](), []
    for declaration in declarations:
        values = hostile(FLOAT16, (2, length, 64), rng)
        payload, on_device = device.upload(np.zeros(n_bytes(declaration, dims), np.uint8)), device.upload(values)
        held.append((payload, on_device))
        expected.append((np.zeros(n_bytes(declaration, dims), np.uint8), declaration, values))
        parts.append(
            transfers.encode_rows(
                declaration,
                dims,
                1,
                payload=device.address(payload),
                values=device.address(on_device),
                positions=device.address(position),
                length=length,
            )
        )
    cache = device.upload(np.zeros((2, 6, 64), np.float16))
    row = rng.standard_normal((2, 1, 64)).astype(np.float16)
    row_on_device = device.upload(row)
    parts.append(
        transfers.dense_update(
            cache=device.address(cache),
            values=device.address(row_on_device),
            positions=device.address(position),
            shape=(2, 6, 64),
            length=1,
            itemsize=2,
            axis=1,
        )
    )
    step = Step(device, parts)
    assert step.kernel == "step"
    for start in (4, 1):
        position[...] = np.frombuffer(np.int64(start).tobytes(), np.uint8)
        step.launch()
        assert step.refused() == {}
        for (payload, _), (bytes_, declaration, values) in zip(held, expected, strict=True):
            encode_rows(bytes_, declaration, dims, 1, start, values)
            np.testing.assert_array_equal(device.download(payload), bytes_, err_msg=str(declaration))
        assert np.array_equal(device.download(cache).view(np.float16).reshape(2, 6, 64)[:, start : start + 1], row)


@needs_compiler
def test_mc_dense_012_only_the_refused_update_of_a_step_writes_nothing() -> None:
    device = host()
    cache = [device.upload(np.zeros((4, 8), np.uint8)) for _ in range(3)]
    values = device.upload(np.ones((2, 8), np.uint8))
    starts = [device.upload(np.array(start, np.int64)) for start in (2, 3, 0)]
    step = Step(
        device,
        [
            transfers.dense_update(
                cache=device.address(target),
                values=device.address(values),
                positions=device.address(start),
                shape=(4, 8),
                length=2,
                itemsize=1,
            )
            for target, start in zip(cache, starts, strict=True)
        ],
    )
    step.launch()
    starts[1][...] = 0  # the flag stays up until it is read
    step.launch()
    assert step.refused() == {1: Status.OVERFLOW}
    assert step.refused() == {}
    sums = [int(device.download(target).sum()) for target in cache]
    assert sums == [16, 16, 16]  # the second launch found a position in range


def page_table(declarations: list[Declaration], dims: tuple[int, ...]) -> tuple[list[np.ndarray], np.ndarray]:
    """Payloads on the host device, and the records of the pages; the last page is absent."""
    device = host()
    payloads = [device.upload(np.zeros(n_bytes(declaration, dims), np.uint8)) for declaration in declarations]
    records = np.zeros(len(declarations) + 1, PAGE)
    for index, (declaration, payload) in enumerate(zip(declarations, payloads, strict=True)):
        records[index] = transfers.page_record(declaration, dims, device.address(payload), is_vector=True)
    records[-1] = transfers.absent_page()
    return payloads, records


@needs_compiler
def test_mc_paged_004_the_page_is_named_on_the_device() -> None:
    device = host()
    rng = np.random.default_rng(3)
    dims = (5, 64)
    declarations = [*plain_declarations(FLOAT16), *packed_declarations(FLOAT16, 16, 0)][:20]
    payloads, records = page_table(declarations, dims)
    table, page_id = device.upload(records), device.upload(np.array(0, np.int64))
    values = hostile(FLOAT16, (2, 64), rng)
    on_device, position = device.upload(values), device.upload(np.array(3, np.int64))
    step = Step(
        device,
        [
            transfers.encode_rows_of(
                declarations[0],
                dims,
                0,
                pages=device.address(table),
                n_pages=len(records),
                page_id=device.address(page_id),
                values=device.address(on_device),
                positions=device.address(position),
                length=2,
            )
        ],
    )
    for number, declaration in enumerate(declarations):
        page_id[...] = np.frombuffer(np.int64(number).tobytes(), np.uint8)
        step.launch()
        assert step.refused() == {}
        expected = np.zeros(n_bytes(declaration, dims), np.uint8)
        encode_rows(expected, declaration, dims, 0, 3, values)
        np.testing.assert_array_equal(device.download(payloads[number]), expected, err_msg=str(declaration))
    for number in (-1, len(records) - 1, len(records), 2**62):
        page_id[...] = np.frombuffer(np.int64(number).tobytes(), np.uint8)
        step.launch()
        assert step.refused() == {0: Status.NO_PAGE}


@needs_compiler
def test_transfers_that_meet_are_no_step() -> None:
    device = host()
    cache, row = device.upload(np.zeros(64, np.uint8)), device.upload(np.zeros(16, np.uint8))
    start = device.upload(np.array(0, np.int64))

    def update(offset: int, values: int = device.address(row)) -> Transfer:
        target = device.address(cache) + offset
        return transfers.dense_update(
            cache=target, values=values, positions=device.address(start), shape=(4, 8), length=1, itemsize=1
        )

    with pytest.raises(ValueError, match=r"transfer 0 writes bytes up to .*, and transfer 1 writes them from"):
        launch(device, update(0), update(16))
    for values in (device.address(cache) + 8, device.address(cache) + 63):
        with pytest.raises(ValueError, match=r"writes bytes up to .*, and transfer 0 reads them from"):
            launch(device, update(32, values), update(0, values))
    assert launch(device, update(0), update(32)) == {}


@needs_compiler
def test_gathers_interleave_and_read_the_same_page() -> None:
    device = host()
    declaration = packed(FLOAT16, TensorProto.INT8, 8, 16, FLOAT16, rank=3)
    payload = device.upload(np.zeros(n_bytes(declaration, (2, 4, 16)), np.uint8))
    out = device.upload(np.ones(2 * 4 * 16 * 2, np.float16))

    def part(offset: int, target: int = device.address(out)) -> Transfer:
        return transfers.decode_rows(
            declaration, (2, 4, 16), 1, payload=device.address(payload), values=target + offset, values_rows=8
        )

    assert launch(device, part(0), part(4 * 16 * 2)) == {}
    assert not device.download(out).any()
    with pytest.raises(ValueError, match=r"transfer 0 reads bytes .* and transfer 0 gathers to them"):
        launch(device, part(0, device.address(payload) + 64))


def test_kernels_of_a_step() -> None:
    def transfer(kernel: str) -> Transfer:
        return Transfer(np.zeros((), np.void), None, kernel, (0, 0), (0, 0))

    assert kernel_of([transfer("encode_cast_e4m3_f16")] * 2) == "encode_cast_e4m3_f16"
    assert kernel_of([transfer("encode_cast_e4m3_f16"), transfer("dense_update")]) == "step"
    assert kernel_of([transfer("decode_cast_e4m3_f16"), transfer("gather")]) == "gather"
    with pytest.raises(ValueError, match="no kernel does all of decode_cast_e4m3_f16, dense_update"):
        kernel_of([transfer("decode_cast_e4m3_f16"), transfer("dense_update")])


@pytest.mark.parametrize("number", [1, 2, 3, 7, 64, 65537, 2**31 - 1])
def test_division_by_multiplication_is_exact(number: int) -> None:
    _, multiplier, shift = divisor(number)
    edges = [0, 1, number - 1, number, 2**31 - 1, *(np.random.default_rng(0).integers(0, 2**31, 1000).tolist())]
    multiples = [factor * number + offset for factor in (1, 2, 3, 2**31 // number - 1) for offset in (-1, 0)]
    for n in (n for n in edges + multiples if 0 <= n < 2**31):
        found = n if multiplier == 0 else n * multiplier >> 32 >> shift
        assert found == n // number
    assert multiplier < 2**32


def test_unit_of() -> None:
    assert unit_of(16, 48, 64) == 16
    assert unit_of(16, 48, 6) == 2
    assert unit_of(16, 0, 0) == 16


def test_the_registry_has_a_kernel_for_every_codec_and_nothing_else() -> None:
    declarations = [*plain_declarations(FLOAT16), *packed_declarations(FLOAT16, 16, 0)]
    names = {codec_name(declaration) for declaration in declarations if declaration.kind != "identity"}
    assert names == set(CODECS)
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.cu")))
    for kernel in KERNELS.values():
        stem = kernel.name
        for element in ELEMENTS:
            stem = stem.removesuffix(f"_{element}")
        stem = stem if stem == kernel.name else stem.split("_")[0] + "_##name"
        assert f"mutcache_{stem}(const Rows*" in sources, kernel.name
        if kernel.name == "empty":
            continue
        assert kernel.mutates
        assert kernel.requirements


def test_connect_says_in_one_line_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceUnavailable, match="CuPy cannot be imported") as caught:
        connect()
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="there is no device 'tpu'"):
        connect("tpu")


def test_an_unaligned_page_is_packed_in_pieces() -> None:
    declaration = packed(FLOAT16, TensorProto.INT4, 4, 32, FLOAT16, layout=1)
    record = transfers.page_record(declaration, (4, 64), 0x1002, is_vector=True)
    assert [int(record[name]) for name in ("code_stride", "unit", "is_aligned")] == [18, 2, 1]
    assert transfers.page_record(declaration, (4, 64), 0x1001, is_vector=True)["is_aligned"].item() == 0


def test_compiled_files_go_where_they_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MUTCACHE_CACHE", str(tmp_path / "cache"))
    assert cached("one.cubin") == tmp_path / "cache" / "one.cubin"
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("MUTCACHE_CACHE", str(tmp_path / "file"))
    elsewhere = cached("one.cubin")
    assert elsewhere.parent.is_dir()
    assert cached("two.cubin").parent == elsewhere.parent

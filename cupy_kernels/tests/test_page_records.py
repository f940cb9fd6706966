"""Updates of pages that launches find by number: what a session writes, in one launch and on pages of all types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_cases import Array, host, needs_compiler
from paged_models import container, identity, packed_int8, paged_update, scalar, static_int8, static_uint8

from mutcache import Page, PageTable, Session
from mutcache.proto.onnx_ml import ModelProto, QuantizationProto, TensorProto
from mutcache.quantization import n_bytes, parse_declaration
from mutcache_conformance.cases.builder import model, tensor
from mutcache_cupy.page_records import PageRecords
from mutcache_cupy.records import Status
from mutcache_cupy.samples import hostile
from mutcache_cupy.step import Step

pytestmark = needs_compiler
FLOAT16 = TensorProto.FLOAT16
DIMS = (2, 4, 32)
TYPES = [identity(FLOAT16), static_int8(0.25, FLOAT16), static_uint8(3, FLOAT16), packed_int8(FLOAT16, 32)]


def made(types: list[QuantizationProto] = TYPES, dims: tuple[int, ...] | None = DIMS) -> ModelProto:
    found = model(
        [
            container("cache", FLOAT16, dims, mutable=True),
            scalar("page_id"),
            tensor("values", FLOAT16, (2, "rows", 32)),
            scalar("position"),
        ],
        [paged_update("cache", "updated")],
        [container("updated", FLOAT16, dims, alias_of="cache")],
    )
    found.quantizations.extend(types)
    return found


def payload(quantized_type: int, dims: tuple[int, ...] = DIMS) -> Array:
    size = n_bytes(parse_declaration(TYPES[quantized_type]), dims)
    return np.random.default_rng(quantized_type).integers(0, 256, size, dtype=np.uint8)


def device_page(quantized_type: int, offset: int = 0) -> Page:
    content = payload(quantized_type)
    buffer = host().empty(content.nbytes + offset)
    view = host().view(buffer, offset, np.dtype(np.uint8), content.shape)
    host().write(view, content)
    return Page(quantized_type, DIMS, view)


def table(pages: Any, **options: Any) -> PageTable:
    return PageTable(pages, model=made(**options), value="cache")


def test_one_step_writes_to_whatever_page_is_named_as_a_session_does() -> None:
    """Two layers, and the same step for pages of all types; values, numbers and positions change on the device."""
    device, rng = host(), np.random.default_rng(1)
    layers = [table([device_page(kind) for kind in order]) for order in ((0, 1, 2, 3), (3, 2, 1, 0))]
    expected = [
        PageTable([Page(kind, DIMS, payload(kind)) for kind in order], model=made(), value="cache")
        for order in ((0, 1, 2, 3), (3, 2, 1, 0))
    ]
    records = [PageRecords(device, layer, 6) for layer in layers]
    values = [device.empty(2 * 1 * 32 * 2) for _ in layers]
    page_id, position = device.upload(np.array(0, np.int64)), device.upload(np.array(0, np.int64))
    step = Step(
        device,
        [
            one.encode_rows(
                page_id=device.address(page_id),
                values=device.address(rows),
                positions=device.address(position),
                length=1,
            )
            for one, rows in zip(records, values, strict=True)
        ],
    )
    with Session(made()) as one:
        for token in range(16):
            new = [hostile(FLOAT16, (2, 32), rng).reshape(2, 1, 32) for _ in layers]
            for target, rows in zip(values, new, strict=True):
                device.write(target, rows)
            device.write(page_id, np.array(token // 4, np.int64))
            device.write(position, np.array(token % 4, np.int64))
            step.launch()
            assert step.refused() == {}
            for layer, wanted, rows in zip(layers, expected, new, strict=True):
                with one.bind({"cache": wanted}) as binding:
                    binding.run({"page_id": token // 4, "values": rows, "position": token % 4})
                for number, page in wanted.items():
                    np.testing.assert_array_equal(layer[number].payload.get(), page.payload)
        for number, status in ((4, Status.NO_PAGE), (6, Status.NO_PAGE), (-1, Status.NO_PAGE)):
            device.write(page_id, np.array(number, np.int64))
            step.launch()
            assert step.refused() == {0: status, 1: status}


def test_records_are_refreshed_when_pages_are_made_or_replaced() -> None:
    device = host()
    pages = table([device_page(1)])
    records = PageRecords(device, pages, 2)
    page_id, position = device.upload(np.array(1, np.int64)), device.upload(np.array(2, np.int64))
    rows = np.ones((2, 2, 32), np.float16)
    values = device.upload(rows)
    addresses = {"page_id": device.address(page_id), "positions": device.address(position)}
    step = Step(device, [records.encode_rows(values=device.address(values), length=2, **addresses)])
    step.launch()
    assert step.refused() == {0: Status.NO_PAGE}
    pages.put(1, device_page(0))
    step.launch()
    assert step.refused() == {0: Status.NO_PAGE}  # the records are those of the time when they were entered
    records.refresh()
    step.launch()
    assert step.refused() == {}
    assert (pages.decode(1)[:, 2:] == 1).all()


@pytest.mark.parametrize(
    ("pages", "options", "capacity", "axis", "message"),
    [
        ([Page(0, DIMS, payload(0))], {}, 1, -2, "is on cpu"),
        ([1, 1], {}, 1, -2, "page 1 of .* have a capacity of 1"),
        ([0], {}, 1, 3, "axis 3 is out of range"),
        ([1], {}, 1, -1, "has no vectors"),
        ([], {"dims": None}, 1, -2, "nothing says what shape"),
        ([], {"dims": ("heads", 4, 32)}, 1, -2, "nothing says what shape"),
    ],
)
def test_a_table_without_records(
    pages: list[Any], options: dict[str, Any], capacity: int, axis: int, message: str
) -> None:
    made_pages = [device_page(page) if isinstance(page, int) else page for page in pages]
    with pytest.raises(ValueError, match=message):
        PageRecords(host(), table(made_pages, **options), capacity, axis)


def test_an_identity_page_off_16_bytes_has_no_vectors() -> None:
    PageRecords(host(), table([device_page(0, 16), device_page(3, 1)]), 2)
    with pytest.raises(ValueError, match=r"page 0 of .* has no vectors"):
        PageRecords(host(), table([device_page(0, 8)]), 1)

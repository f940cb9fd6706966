"""Page tables as test data: through SequenceProto, MapProto, and their bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from paged_models import IDENTITY, INT8_PAGE, PAGE, gather_model, identity_page, int8_page, paged_model, rows

from mutcache import DecodeError, PageTable, Session, page_table_from_proto, page_table_to_proto
from mutcache.proto.onnx_data import MapProto, SequenceProto
from mutcache.proto.onnx_ml import TensorProto
from mutcache.requirements import Req


def sequence() -> SequenceProto:
    table = PageTable([identity_page(rows(4)), int8_page(rows(4, 30))], model=paged_model(), value="cache")
    proto = page_table_to_proto(table, "pages")
    assert isinstance(proto, SequenceProto)
    return proto


def test_a_sequence_says_all_of_its_pages() -> None:
    proto = sequence()
    assert (proto.name, proto.elem_type) == ("pages", SequenceProto.QUANTIZED_TENSOR)
    first, second = proto.quantized_tensor_values
    assert (first.quantized_type, first.n_bytes, list(first.dims)) == (IDENTITY, 256, list(PAGE))
    assert first.raw_data == rows(4).tobytes()
    assert (second.quantized_type, second.raw_data) == (INT8_PAGE, rows(4, 30).astype(np.int8).tobytes())
    assert not second.HasField("quantization")


@pytest.mark.parametrize("is_map", [False, True])
def test_pages_survive_their_bytes(is_map: bool) -> None:
    made = paged_model(is_map=is_map)
    pages = {1 << 40: identity_page(rows(4)), 3: int8_page(rows(4, 30))}
    table = PageTable(pages if is_map else list(pages.values()), model=made, value="cache")
    stored = page_table_to_proto(table).SerializeToString()
    kind = MapProto if is_map else SequenceProto
    again = page_table_from_proto(kind.FromString(stored), model=made, value="cache")
    assert {number: (page.quantized_type, page.dims, page.payload.tobytes()) for number, page in again.items()} == {
        number: (page.quantized_type, page.dims, page.payload.tobytes()) for number, page in table.items()
    }
    outputs = Session(gather_model(is_map=is_map)).run({"cache": again, "ids": np.array([3] if is_map else [1])})
    np.testing.assert_array_equal(outputs["pages"], rows(4, 30))
    with Session(made).bind({"cache": again}) as binding:  # copies, which a run may write to
        number = 3 if is_map else 1
        binding.run({"page_id": number, "values": rows(1), "position": 0, "quantized_type": INT8_PAGE})
    assert page_table_to_proto(table).SerializeToString() == stored


def test_stock_onnx_keeps_the_pages() -> None:
    stored = sequence().SerializeToString(deterministic=True)
    assert onnx.SequenceProto.FromString(stored).SerializeToString(deterministic=True) == stored


def without_type(proto: SequenceProto) -> None:
    proto.quantized_tensor_values[0].ClearField("quantized_type")


def with_own_quantization(proto: SequenceProto) -> None:
    proto.quantized_tensor_values[1].quantization.identity.SetInParent()


def with_other_size(proto: SequenceProto) -> None:
    proto.quantized_tensor_values[1].n_bytes += 1


def of_tensors(proto: SequenceProto) -> None:
    proto.elem_type = SequenceProto.TENSOR


@pytest.mark.parametrize(
    ("change", "requirement"),
    [
        (without_type, Req.MC_PAGED_006),
        (with_own_quantization, Req.MC_PAGED_006),
        (with_other_size, Req.MC_PAGED_007),
        (of_tensors, None),
    ],
)
def test_what_is_no_page_is_refused(change: Callable[[SequenceProto], None], requirement: Req | None) -> None:
    proto = sequence()
    change(proto)
    with pytest.raises(DecodeError) as refused:
        page_table_from_proto(proto, model=paged_model(), value="cache")
    assert refused.value.requirement is requirement


def test_a_page_need_not_count_its_bytes() -> None:
    proto = sequence()
    proto.quantized_tensor_values[0].ClearField("n_bytes")
    assert page_table_from_proto(proto, model=paged_model(), value="cache")[0].payload.size == 256


def test_keys_are_distinct_numbers_of_as_many_pages() -> None:
    made = paged_model(is_map=True)
    for proto in (
        MapProto(key_type=TensorProto.STRING, string_keys=[b"a", b"b"], values=sequence()),
        MapProto(key_type=TensorProto.INT64, keys=[1, 1], values=sequence()),
        MapProto(key_type=TensorProto.INT64, keys=[1], values=sequence()),
        MapProto(key_type=TensorProto.INT64, keys=[1]),
        TensorProto(),
    ):
        with pytest.raises(DecodeError):
            page_table_from_proto(proto, model=made, value="cache")  # type: ignore[arg-type]
    table = page_table_from_proto(
        MapProto(key_type=TensorProto.INT64, keys=[7, 2], values=sequence()), model=made, value="cache"
    )
    assert {number: page.quantized_type for number, page in table.items()} == {7: IDENTITY, 2: INT8_PAGE}

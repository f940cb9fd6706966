"""The worked example of chapter PAGED, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from paged_models import FLOAT16, gather_model, identity, paged_model, static_int8

from mutcache import PageTable, RunError, Session
from mutcache.requirements import Req

TYPES = [static_int8(0.5, FLOAT16), identity(FLOAT16)]


def test_the_example_of_the_specification() -> None:
    writer = paged_model(elem_type=FLOAT16, dims=(1, 4, 2), types=TYPES, values=(1, "rows", 2), axis=None)
    untyped = paged_model(elem_type=FLOAT16, dims=(1, 4, 2), types=TYPES, values=(1, "rows", 2), typed=False)
    table = PageTable([], model=writer, value="cache")

    def payload() -> str:
        return bytes(table[0].payload).hex(" ")

    with Session(writer).bind({"cache": table}) as binding:
        binding.run({"page_id": 0, "values": np.array([[[1, -2]]], np.float16), "position": 1, "quantized_type": 0})
    assert payload() == "00 00 02 fc 00 00 00 00"
    first = table[0].payload
    with Session(untyped).bind({"cache": table}) as binding:
        binding.run({"page_id": 0, "values": np.array([[[0.3, 100]]], np.float16), "position": 2})
    assert payload() == "00 00 02 fc 01 7f 00 00"
    assert table[0].payload is first
    with Session(writer).bind({"cache": table}) as binding:
        nothing = np.zeros((1, 0, 2), np.float16)
        binding.run({"page_id": 0, "values": nothing, "position": 0, "quantized_type": 1})
        assert payload() == "00 00 00 00 00 3c 00 c0 00 38 f0 53 00 00 00 00"
        for wrong, requirement in (({"page_id": 2}, Req.MC_PAGED_004), ({"position": 3}, Req.MC_PAGED_005)):
            two_rows = np.zeros((1, 2, 2), np.float16)
            with pytest.raises(RunError) as refused:
                binding.run({"page_id": 0, "values": two_rows, "position": 0, "quantized_type": 1} | wrong)
            assert refused.value.requirement is requirement

    reader = gather_model(elem_type=FLOAT16, dims=(1, 4, 2), types=TYPES)
    outputs = Session(reader).run({"cache": table, "ids": np.array([0, 0])})
    rows = [[0.0, 0.0], [1.0, -2.0], [0.5, 63.5], [0.0, 0.0]]
    np.testing.assert_array_equal(outputs["pages"], np.array([rows + rows], np.float16), strict=True)

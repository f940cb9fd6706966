"""``mutcache`` commands on models with page tables."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from paged_models import INT8_PAGE, gather_model, paged_model, rows
from referencing import Registry, Resource

from mutcache import page_table_from_proto, save
from mutcache.proto.onnx_data import SequenceProto
from mutcache_tools import cli

SCHEMAS = Path(cli.__file__).parent / "schemas"


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(paged_model(dims=["heads", 4, 8]), "writer.onnx")
    save(gather_model(), "reader.onnx")
    np.save("values.npy", rows(2))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


UPDATE = (
    "--input",
    "page_id=0",
    "--input",
    "position=1",
    "--input",
    "quantized_type=1",
    "--input",
    "values=values.npy",
)


def test_run_writes_pages_and_reads_them(writer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "run", "writer.onnx", "--zeros", "cache", *UPDATE, "--output", "updated=pages.pb")
    assert code == 0
    assert "in place: cache" in out
    assert "1 page: 1 INT8" in out
    proto = SequenceProto.FromString((writer / "pages.pb").read_bytes())
    table = page_table_from_proto(proto, model=gather_model(), value="cache")
    np.testing.assert_array_equal(table.decode(0)[:, 1:3], rows(2))
    assert table[0].quantized_type == INT8_PAGE

    code, _, _ = run(
        capsys, "run", "reader.onnx", "--input", "cache=pages.pb", "--input", "ids=[0]", "--output", "pages=read.npy"
    )
    assert code == 0
    np.testing.assert_array_equal(np.load("read.npy"), table.decode(0))

    before = (writer / "pages.pb").read_bytes()
    code, out, _ = run(capsys, "run", "writer.onnx", "--input", "cache=pages.pb", *UPDATE, "--format", "json")
    (output,) = json.loads(out)["outputs"]
    assert (code, output["type"], output["shape"], output["storage"]) == (0, "page table", [1], "cache")
    assert (writer / "pages.pb").read_bytes() == before, "the file stays as it is"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--input", "cache=nothing.pb"), "no readable file"),
        (("--input", "cache=values.npy"), "no readable SequenceProto"),
        ((), "no value for the mutable input 'cache'"),
    ],
)
def test_run_refuses_what_are_no_pages(
    writer: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, "run", "writer.onnx", *given, *UPDATE)
    assert code == 2
    assert message in err
    assert writer.exists()


def test_plan_counts_the_pages_that_a_run_makes(writer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--dim", "heads=2", "--dim", "rows=1")
    code, out, _ = run(capsys, "plan", "writer.onnx", *sizes, "--svg", "plan.svg", "--html", "plan.html")
    assert code == 0
    assert "page tables" in out
    assert "INT8 whole page" in out
    assert "new pages" in (writer / "plan.svg").read_text(encoding="utf-8")

    code, out, _ = run(capsys, "plan", "writer.onnx", *sizes, "--format", "json")
    document = json.loads(out)
    (table,) = document["page_tables"]
    assert table["page_bytes"] == {"0": 256, "1": 64, "2": 64, "3": 96}
    assert (table["new_pages"], table["new_bytes"], document["new_page_bytes"]) == (1, 256, 256)
    assert document["in_place"]["peak_bytes"] == document["input_bytes"] + 256
    schemas = [json.loads((SCHEMAS / name).read_text(encoding="utf-8")) for name in ("plan.json", "check.json")]
    registry: Registry = Registry().with_resources((one["$id"], Resource.from_contents(one)) for one in schemas)
    jsonschema.Draft202012Validator(schemas[0], registry=registry).validate(document)

    code, _, err = run(capsys, "plan", "writer.onnx", "--dim", "heads=2")
    assert (code, "'rows'" in err) == (1, True)


def test_show_names_the_page_types(writer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "writer.onnx")
    assert (code, writer.exists()) == (0, True)
    assert "sequence of FLOAT[heads, 4, 8] pages (of any type)" in out
    assert "PagedCacheUpdate(cache, page_id, values, position, quantized_type)" in out
    assert "INT8 in blocks of 8, scale FLOAT" in out

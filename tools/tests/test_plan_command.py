"""``mutcache plan``: what it prints, what it draws, and that no model can upset it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import flow_models as flow
import numpy as np
import onnx
import pytest
from jsonschema import Draft202012Validator
from onnx.reference import ReferenceEvaluator
from referencing import Registry, Resource

import mutcache
from mutcache.proto import from_onnx, save
from mutcache.proto.onnx_ml import ModelProto
from mutcache_conformance.cases.builder import tensor
from mutcache_tools import cli, example_decoder
from mutcache_tools.convert import convert
from mutcache_tools.drawing import shorten
from mutcache_tools.plan_svg import MAX_BODIES, MAX_ROWS, plan_svg
from mutcache_tools.words import byte_words, printable

SVG = "{http://www.w3.org/2000/svg}"


def seed() -> ModelProto:
    made = from_onnx(
        onnx.parser.parse_model(
            """<ir_version: 15, opset_import: ["": 21, "onnx.mutable_cache": 1]>
            g (float16[2,batch,heads,max_length,head_size] cache, float16[2,batch,heads,new_length,head_size] values,
               int64 position) => (float16[2,batch,heads,max_length,head_size] updated_cache)
            { [update] updated_cache = onnx.mutable_cache.CacheUpdate(cache, values, position) }"""
        )
    )
    made.graph.input[0].access = mutcache.READ_WRITE
    made.graph.node[0].output_alias.add(output_index=0, input_index=0, kind=mutcache.MUST_ALIAS)
    made.graph.output[0].alias_of = "cache"
    return made


SEED = ["batch=1", "heads=32", "max_length=4096", "head_size=128", "new_length=16"]


def decoder(layers: int = 2) -> ModelProto:
    return convert(example_decoder.build(layers=layers), 64)


DECODER = ["batch=1", "sequence=1", "position=40"]


def flowing() -> ModelProto:
    """An If, a Loop that collects, and a function, each of which updates the cache."""
    chosen = flow.branch(
        ["b"],
        flow.body([flow.updated("c", "u1")], flow.value("u1", alias_of="c")),
        flow.body([flow.passed("c", "k1")], flow.value("k1", alias_of="c")),
    )
    loop = flow.loop(
        ["b", "x"],
        ["d", "e", "all"],
        [flow.updated("fc", "n1"), flow.negated("fv", "n2"), flow.negated("fv", "n3")],
        flow.value("n1", alias_of="fc"),
        flow.value("n2"),
        flow.value("n3"),
        formals=[flow.value("fc", mutable=True), flow.value("fv")],
    )
    step = flow.function(
        "step",
        ["f", "r", "p"],
        ["g"],
        [flow.updated("f", "g")],
        flow.value("f", mutable=True),
        flow.value("g", alias_of="f"),
    )
    outputs = [flow.value("y", alias_of="c"), flow.value("e"), tensor("all", flow.FLOAT, [None, 8, 4])]
    return flow.graph([chosen, loop, flow.call("step", ["d", "r", "p"], ["y"])], *outputs, functions=[step])


def hostile() -> ModelProto:
    """Names that break terminals and XML, and one that is longer than any line."""
    made = flow.graph([flow.updated("c", "u"), flow.negated("x", "y")], flow.value("y"))
    names = {"c": "<script>alert('&\"')</script>", "u": "a\x1b[31mred\x00", "y": "z" * 300, "x": "\u202eright\ufffe"}
    for value in (*made.graph.input, *made.graph.output):
        value.name = names.get(value.name, value.name)
    for node in made.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    return made


MODELS = {"seed": (seed, SEED), "decoder": (decoder, DECODER), "flow": (flowing, ["m=3"]), "hostile": (hostile, [])}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    folder = files("mutcache_tools") / "schemas"
    plan, check = (json.loads((folder / name).read_text("utf-8")) for name in ("plan.json", "check.json"))
    Draft202012Validator.check_schema(plan)
    registry: Registry[Any] = Registry().with_resource(check["$id"], Resource.from_contents(check))
    return Draft202012Validator(plan, registry=registry)


class Command:
    """Runs ``mutcache plan`` in a folder of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys = capsys
        self._folder = folder

    def __call__(self, model: ModelProto, sizes: list[str], *arguments: str) -> tuple[int, str, str]:
        save(model, self._folder / "model.onnx")
        dims = itertools.chain.from_iterable(("--dim", size) for size in sizes)
        try:
            code = cli.main(["plan", "model.onnx", *dims, *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return code, captured.out, captured.err


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(capsys, tmp_path)


def test_the_example_of_the_proposal(plan: Command) -> None:
    code, out, _ = plan(seed(), SEED)
    assert code == 0
    assert out.splitlines() == [
        "model.onnx  batch 1, heads 32, max_length 4096, head_size 128, new_length 16",
        "",
        "           in place  copying",
        "caches       64 MiB   64 MiB  the caller's",
        "inputs      256 KiB  256 KiB  the caller's",
        "allocated       0 B   64 MiB  the most at once in a run",
        "peak       64.3 MiB  128 MiB  64 MiB saved, 50%",
        "",
        "caches",
        "name    bytes  type                          updated by",
        "cache  64 MiB  FLOAT16[2, 1, 32, 4096, 128]  #0",
    ]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", MODELS)
def test_text_fits_its_width(name: str, width: int, plan: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    make, sizes = MODELS[name]
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, _ = plan(make(), sizes, "--all")
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("name", MODELS)
def test_json_follows_its_schema(name: str, plan: Command, validator: Draft202012Validator) -> None:
    make, sizes = MODELS[name]
    code, out, _ = plan(make(), sizes, "--format", "json")
    assert code == 0
    document = json.loads(out)
    validator.validate(document)
    made = mutcache.plan(make(), {each.partition("=")[0]: int(each.partition("=")[2]) for each in sizes})
    assert made.memory is not None
    assert document["in_place"]["peak_bytes"] == made.memory.peak_bytes
    assert document["copying"]["peak_bytes"] - document["in_place"]["peak_bytes"] == document["saved_bytes"]
    for half in (document["in_place"], document["copying"]):
        main = half["graphs"][0]
        assert main["allocated_bytes"] == main["steps"][main["peak_step"]]["live_bytes"]
        bodies = [at for graph in half["graphs"] for step in graph["steps"] for at in step["bodies"].values()]
        assert sorted(set(bodies)) == list(range(1, len(half["graphs"])))


def test_json_of_failures_follows_the_schema(plan: Command, validator: Draft202012Validator) -> None:
    code, out, _ = plan(seed(), SEED[:2], "--format", "json")
    assert code == 1
    validator.validate(json.loads(out))
    assert "'max_length', 'head_size', 'new_length'" in json.loads(out)["error"]["message"]
    unsound = seed()
    unsound.graph.output[0].alias_of = "elsewhere"
    code, out, _ = plan(unsound, SEED, "--format", "json")
    assert code == 1
    validator.validate(json.loads(out))
    assert json.loads(out)["diagnostics"][0]["requirement"] == "MC-ALIAS-006"


def test_wrong_usage(plan: Command) -> None:
    code, _, err = plan(decoder(), [])
    assert code == 1
    assert "hint: --dim batch=N --dim sequence=N --dim position=N" in err
    assert plan(seed(), [*SEED, "batch=2"])[0] == 2
    assert plan(seed(), ["batch"])[0] == 2
    assert plan(seed(), ["batch=-1"])[0] == 2
    code, _, err = plan(seed(), [*SEED, "hats=3"])
    assert code == 1
    assert "no dimension 'hats'" in err
    assert plan(seed(), SEED, "--schedule", "backwards")[0] == 2


def test_files_that_cannot_be_written(plan: Command, tmp_path: Path) -> None:
    for option in ("--svg", "--html"):
        code, _, err = plan(seed(), SEED, option, "missing/plan")
        assert code == 2
        assert "missing" in err
    (tmp_path / "folder").mkdir()
    assert plan(seed(), SEED, "--svg", "folder")[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "model.onnx"]


def test_the_sizes_of_a_converted_decoder_are_those_of_the_original() -> None:
    """A run of the original with 40 valid rows makes the same values; they have the same names."""
    original = example_decoder.build()
    made = mutcache.plan(convert(original, 64), {"batch": 1, "sequence": 1, "position": 40})
    assert made.memory is not None
    assert made.memory.unknown == ()
    names = [name for node in original.graph.node for name in node.output if not name.startswith(("present", "logits"))]
    original.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    feeds: dict[str, Any] = {"input_ids": np.zeros((1, 1), np.int64)}
    feeds |= {
        f"past.{layer}.{kind}": np.zeros((1, 2, 40, 8), np.float32) for layer in (0, 1) for kind in ("key", "value")
    }
    results = dict(
        zip(
            [*(output.name for output in original.graph.output)],
            ReferenceEvaluator(original).run(None, feeds),
            strict=True,
        )
    )
    planned = {storage.name: storage.bytes for storage in made.memory.in_place.storages}
    assert {name: planned[name] for name in names} == {name: results[name].nbytes for name in names}


# The drawing.


def drawn(model: ModelProto, sizes: list[str]) -> ElementTree.Element:
    dims = {each.partition("=")[0]: int(each.partition("=")[2]) for each in sizes}
    return ElementTree.fromstring(plan_svg(mutcache.plan(model, dims), "model.onnx"))


def texts(svg: ElementTree.Element) -> Iterator[tuple[float, float, float, str]]:
    """Left edge, right edge, base line and content of every text, its width estimated."""
    for element in svg.iter(f"{SVG}text"):
        content = "".join(element.itertext()) if element.find(f"{SVG}title") is None else (element[0].tail or "")
        style = element.get("class", "")
        size = 24 if "figure" in style else 19 if "title" in style else 13.5 if "heading" in style else 12
        width = len(content) * size * 0.56
        x = float(element.get("x", "0"))
        left = {"end": x - width, "middle": x - width / 2}.get(element.get("text-anchor", "start"), x)
        yield left, left + width, float(element.get("y", "0")), content


@pytest.mark.parametrize("name", MODELS)
def test_no_text_lies_on_another_or_outside(name: str) -> None:
    make, sizes = MODELS[name]
    svg = drawn(make(), sizes)
    width, height = float(svg.get("width", "0")), float(svg.get("height", "0"))
    found = list(texts(svg))
    assert found
    for left, right, base, content in found:
        assert left >= 0, content
        assert right <= width + 1, content
        assert 0 < base < height, content
    for one, other in itertools.combinations(found, 2):
        if abs(one[2] - other[2]) < 10:
            assert one[1] <= other[0] or other[1] <= one[0], (one, other)


@pytest.mark.parametrize("name", MODELS)
def test_bars_stay_inside_and_say_what_they_are(name: str) -> None:
    make, sizes = MODELS[name]
    svg = drawn(make(), sizes)
    width, height = float(svg.get("width", "0")), float(svg.get("height", "0"))
    bars = [rect for rect in svg.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert bars
    for bar in bars:
        x, y = float(bar.get("x", "0")), float(bar.get("y", "0"))
        assert x >= 0
        assert x + float(bar.get("width", "0")) <= width
        assert y + float(bar.get("height", "0")) <= height
        assert bar[0].text


def test_both_peaks_stand_in_the_drawing() -> None:
    contents = [content for *_, content in texts(drawn(seed(), SEED))]
    assert "peak in place: 64.3 MiB in step 0" in contents
    assert "peak copying: 128 MiB in step 0" in contents
    assert {"64.3 MiB", "128 MiB", "64 MiB (50%)"} <= set(contents)


def test_the_drawing_of_a_long_model_is_no_longer() -> None:
    dims = {"batch": 1, "sequence": 1, "position": 40}
    short, long = (plan_svg(mutcache.plan(decoder(layers), dims), "m") for layers in (24, 60))
    heights = [float(ElementTree.fromstring(svg).get("height", "0")) for svg in (short, long)]
    assert heights[0] == heights[1] < 140 + 320 + 3 * (60 + 20 * MAX_ROWS) + 100
    assert len(long) < 2 * len(short)
    assert "others" in long


def test_bodies_beyond_a_limit_are_counted() -> None:
    functions = [
        flow.function(f"f{number}", ["t"], ["u"], [flow.negated("t", "s"), flow.negated("s", "u")])
        for number in range(MAX_BODIES + 3)
    ]
    calls = [flow.call(f"f{number}", ["x"], [f"y{number}"]) for number in range(MAX_BODIES + 3)]
    model = flow.graph([*calls, flow.updated("c", "u")], flow.value("y0"), functions=functions)
    assert "and 3 bodies that need less" in [content for *_, content in texts(drawn(model, []))]


def test_the_page_is_whole_and_needs_nothing_else(plan: Command, tmp_path: Path) -> None:
    code, _, _ = plan(hostile(), [], "--html", "plan.html", "--svg", "plan.svg")
    assert code == 0
    page = (tmp_path / "plan.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "<script>" not in page
    assert re.findall(r"(?:href|src)=|url\(|@import", page) == []
    assert "prefers-color-scheme: dark" in page
    ElementTree.parse(tmp_path / "plan.svg")


def test_a_lower_bound_says_so(plan: Command) -> None:
    model = flowing()
    code, out, _ = plan(model, [], "--svg", "plan.svg")
    assert code == 0
    assert "at least" in out
    assert "main: all" in out
    assert "Not counted" in Path("plan.svg").read_text("utf-8")


# Words.


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (None, "?"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (102400, "100 KiB"),
        (1047552, "1023 KiB"),
        (1048575, "1 MiB"),
        (5 << 30, "5 GiB"),
        ((1 << 63) - 1, "8 EiB"),
    ],
)
def test_bytes_in_words(count: int | None, words: str) -> None:
    assert byte_words(count) == words


def test_names_are_shortened_in_the_middle() -> None:
    assert shorten("short", 100, 10) == "short"
    cut = shorten("beginning.middle.end", 70, 10)
    assert cut.startswith("beg")
    assert cut.endswith("end")
    assert len(cut) == 12
    assert printable("a\x1bb") == r"'a\x1bb'"

"""``mutcache bench``: its registry, its arithmetic and its table. That it measures well, no test can say."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from onnx import checker

from mutcache.check import check_model
from mutcache.executor import Session
from mutcache.lower import lower
from mutcache.proto import to_onnx
from mutcache_tools import cli
from mutcache_tools.bench import BENCHMARKS, Goal, Peer, Row, Unit, decoder, dense_update
from mutcache_tools.bench.table import show
from mutcache_tools.bench.timing import compare

ROWS = (
    Row("copy", Unit.SECONDS, 0.002, Peer("memcpy", 0.001), Goal(1.5), "a note"),
    Row("growth", Unit.BYTES, 3 << 20, goal=Goal(4 << 20)),
    Row("throughput", Unit.SECONDS, 0.9, Peer("device copy", 1.0), Goal(0.8, at_least=True)),
    Row("absent", Unit.SECONDS, 5e-6, Peer("other runtime", absence="it is not installed"), Goal(1.0)),
    Row("only shown", Unit.SECONDS, 5e-9),
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """One benchmark more, called fake-rows."""

    def measure() -> Iterator[Row]:
        yield from ROWS

    module = ModuleType("mutcache_tools.bench.fake_rows")
    module.measure = measure  # type: ignore[attr-defined]  # a module made by hand
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(BENCHMARKS, "fake-rows", "fake_rows")


def test_ratios_and_verdicts() -> None:
    assert [row.ratio for row in ROWS] == [2.0, None, 0.9, None, None]
    assert [row.is_reached for row in ROWS] == [False, True, True, None, None]


@pytest.mark.usefixtures("fake")
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "fake-rows", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["machine"]) == {"processor", "system", "packages"}
    assert "onnx 1." in document["machine"]["packages"]
    assert [row["reached"] for row in document["rows"]] == [False, True, True, None, None]
    assert document["rows"][0] == {
        "benchmark": "fake-rows",
        "what": "copy",
        "unit": "s",
        "figure": 0.002,
        "peer": {"name": "memcpy", "figure": 0.001, "absence": None},
        "ratio": 2.0,
        "goal": {"limit": 1.5, "at_least": False},
        "reached": False,
        "note": "a note",
    }


@pytest.mark.usefixtures("fake")
def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "fake-rows"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "2.00x 2.00 ms 1.00 ms <= 1.5 missed fake-rows: copy" in lines
    assert "- 3.00 MiB - <= 4.00 MiB reached fake-rows: growth" in lines
    assert "0.90x 900 ms 1.00 s >= 0.8 reached fake-rows: throughput" in lines
    assert "- 5.00 us - <= 1 not measured fake-rows: absent" in lines
    assert "against other runtime: it is not installed" in lines


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "nonsense"]) == 2
    assert "there are check, dense-update, page-codec" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("figure", "unit", "text"),
    [
        (1.25e-8, Unit.SECONDS, "12.5 ns"),
        (123.4, Unit.SECONDS, "123 s"),
        (0.0, Unit.SECONDS, "0.00 ns"),
        (1023, Unit.BYTES, "1023 B"),
        (5 << 40, Unit.BYTES, "5120 GiB"),
        (None, Unit.BYTES, "-"),
    ],
)
def test_figures(figure: float | None, unit: Unit, text: str) -> None:
    assert show(figure, unit) == text


def test_competitors_take_turns_and_every_other_round_goes_backwards() -> None:
    calls: list[str] = []
    times = compare([lambda: calls.append("a"), lambda: calls.append("b")], rounds=2, warm_up=1, calls=2)
    assert "".join(calls) == "aabb" + "bbaa" + "aabb"
    assert len(times) == 2


def test_the_decoder_is_sound_and_its_lowered_form_is_too() -> None:
    model = decoder.build(2)
    assert check_model(model) == []
    checker.check_model(to_onnx(lower(model)), full_check=True)
    layer = len(model.graph.node) - len(decoder.build(1).graph.node)
    assert 190 <= layer <= 210
    assert sum(len(node.output_alias) for node in model.graph.node) == 4
    assert sum(bool(value.alias_of) for value in model.graph.output) == 4


def test_the_decoder_keeps_what_it_was_told() -> None:
    """Two tokens one by one give the logits of the second that both at once give."""
    model = decoder.build(1)
    shape = (1, decoder.KV_HEADS, 4, decoder.HEAD_SIZE)
    far = np.float16(-1e4)

    def logits(session: Session, steps: list[list[int]]) -> np.ndarray:
        caches = {f"past.0.{kind}": np.zeros(shape, np.float16) for kind in ("key", "value")}
        position = 0
        with session.bind(caches) as binding:
            for tokens in steps:
                places = position + np.arange(len(tokens))
                mask = np.where(np.arange(shape[2]) <= places[:, None], np.float16(0), far)
                results = binding.run(
                    {
                        "input_ids": np.array([tokens]),
                        "position_ids": places[None],
                        "position": np.array([position]),
                        "mask": mask[None, None].astype(np.float16),
                    }
                )
                position += len(tokens)
        return np.asarray(results["logits"][0, -1])

    with Session(model) as session:
        one_by_one, at_once = logits(session, [[3], [5]]), logits(session, [[3, 5]])
        forgetful = logits(session, [[5]])
    np.testing.assert_allclose(one_by_one, at_once, atol=0.02)
    assert np.abs(forgetful - at_once).max() > 0.05


@pytest.mark.parametrize("is_installed", [True, False])
def test_dense_update_rows(is_installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_installed:
        pytest.importorskip("onnxruntime")
    else:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(dense_update, "SHAPE", (2, 1, 2, 16, 4))
    monkeypatch.setattr(dense_update, "POSITION", 3)
    monkeypatch.setattr(dense_update, "SHORT", (1,))
    monkeypatch.setattr(dense_update, "LONG", 8)
    monkeypatch.setattr(dense_update, "compare", lambda work, **_: [2.0 for _ in work])
    rows = list(dense_update.measure())
    assert [row.goal and row.goal.limit for row in rows] == [1.0, None, 1.05]
    assert [row.ratio for row in rows] == ([1.0, 1.0, 1.0] if is_installed else [None, None, 1.0])
    if not is_installed:
        assert rows[0].peer is not None
        assert rows[0].peer.absence == "onnxruntime is not installed"

"""The adapters of runtimes that exist. Each test needs a package, and is skipped with its name where that is absent."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from mutcache_conformance import adapters
from mutcache_conformance.adapters import UnknownRuntime, command_of
from mutcache_conformance.cases import generate
from mutcache_conformance.runner import Configuration, Runner
from mutcache_conformance.status import CaseResult, Status

CASES = {case.id: case for case in generate()}
UPDATE, OVERFLOW, READ_ONLY = "dense-001/first-rows", "dense-003/by-one", "bind-002/read-only"


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def results(runtime: str, folder: Path, *cases: str, **options: str) -> list[CaseResult]:
    with Runner(Configuration(command_of(runtime), folder, options=options), CASES) as runner:
        return [runner.run(CASES[case]) for case in cases]


def statuses(runtime: str, folder: Path, *cases: str, **options: str) -> list[Status]:
    return [result.status for result in results(runtime, folder, *cases, **options)]


@pytest.mark.parametrize(
    "options",
    [{}, {"graph_optimization": "disable", "execution_mode": "parallel", "threads": "1"}],
    ids=["defaults", "options"],
)
def test_onnxruntime_updates_lowered_models_in_place(tmp_path: Path, options: dict[str, str]) -> None:
    needs("onnxruntime")
    cases = (UPDATE, OVERFLOW, "dense-007/special-bfloat16", "dense-009/overlap")
    assert statuses("onnxruntime-lowered", tmp_path, *cases, **options) == [Status.PASS] * len(cases)


def test_onnxruntime_is_scored_on_what_it_accepts(tmp_path: Path) -> None:
    needs("onnxruntime")
    refused, batch = results("onnxruntime-lowered", tmp_path, READ_ONLY, "dense-013/batch-behind")
    assert refused.status is Status.FAIL
    assert "must be refused in phase bind" in refused.reason
    assert batch.status is Status.UNSUPPORTED
    assert "batch_axis is 2" in batch.reason


def test_onnxruntime_does_not_take_the_models_as_they_are(tmp_path: Path) -> None:
    needs("onnxruntime")
    plain, update = results("onnxruntime", tmp_path, "proto-001/unannotated", UPDATE)
    assert plain.status is Status.PASS
    assert update.status is Status.UNSUPPORTED
    assert "IR version: 15" in update.reason


def test_onnxruntime_ignores_what_it_does_not_know(tmp_path: Path) -> None:
    """It cannot be asked for the valid twin; to accept the bad model is a failure nevertheless."""
    needs("onnxruntime")
    older, of_today = results("onnxruntime", tmp_path, "proto-002/older-alias-only", "alias-001/negative")
    assert older.status is Status.FAIL
    assert "a load succeeded that must be refused" in older.cause
    assert of_today.status is Status.UNSUPPORTED
    assert not of_today.evidence.steps


def test_an_option_that_is_unknown_is_refused() -> None:
    needs("onnxruntime")
    from mutcache_conformance.adapters.onnxruntime import OnnxRuntimeAdapter

    for options in ({"speed": "high"}, {"graph_optimization": "most"}, {"execution_mode": "random"}, {"threads": "x"}):
        with pytest.raises(ValueError, match=r"option|graph_optimization|execution_mode|invalid literal"):
            OnnxRuntimeAdapter(options)


def test_the_evaluator_of_onnx_copies(tmp_path: Path) -> None:
    (result,) = results("onnx-reference", tmp_path, UPDATE)
    assert result.status is Status.FAIL
    assert result.cause == "an output that must alias its storage is a copy"


def test_genai_says_what_it_cannot_be_asked(tmp_path: Path) -> None:
    needs("onnxruntime_genai")
    update, plain = results("onnxruntime-genai", tmp_path, UPDATE, "proto-001/unannotated")
    assert update.status is plain.status is Status.UNSUPPORTED
    assert "those of GenAI are [batch, heads, capacity, head size]" in update.reason
    assert "without caches" in plain.reason


def test_genai_writes_rows_where_the_probes_look_for_them(tmp_path: Path) -> None:
    needs("onnxruntime_genai")
    import onnxruntime_genai

    from mutcache_conformance.adapters.onnxruntime_genai import KEY, VALUE, write_decoder

    model = onnxruntime_genai.Model(str(write_decoder(tmp_path, capacity=6, width=4)))
    generator = onnxruntime_genai.Generator(model, onnxruntime_genai.GeneratorParams(model))
    generator.append_tokens(np.array([[7, 2]], np.int32))
    keys = np.array([8, 3, 0, 0, 0, 0], np.float32)
    np.testing.assert_array_equal(generator.get_output(KEY), np.tile(keys[:, None], (1, 1, 1, 4)))
    np.testing.assert_array_equal(generator.get_output(VALUE), -generator.get_output(KEY))


def test_llama_cpp_says_what_it_cannot_be_asked(tmp_path: Path) -> None:
    needs("llama_cpp")
    update, plain = results("llama.cpp", tmp_path, UPDATE, "proto-001/unannotated")
    assert update.status is Status.NOT_APPLICABLE
    assert "storage of the caller" in update.reason
    assert plain.status is Status.UNSUPPORTED


def test_llama_cpp_writes_rows_where_the_probes_look_for_them(tmp_path: Path) -> None:
    needs("llama_cpp")
    needs("gguf")
    from mutcache_conformance.adapters.llama_cpp import WIDTH, Context, write_model

    context = Context(write_model(tmp_path / "model.gguf"), cells=256, types=("f32", "f32"))
    assert context.decode([7, 2], 0) == 0
    rows = context.rows()
    assert rows.positions == [0, 1]
    found = np.array([np.frombuffer(row, np.float32) for row in rows.keys[0][1]])
    np.testing.assert_allclose(found, np.repeat([[8.0], [3.0]], WIDTH, axis=1), rtol=1e-5)


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime-lowered", "onnxruntime-genai", "llama.cpp"])
def test_an_absent_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters.importlib.util, "find_spec", lambda _: None)  # type: ignore[attr-defined]  # a module
    with pytest.raises(UnknownRuntime, match=r"which is not installed: pip install 'mutcache\[[a-z-]+\]'$"):
        command_of(name)
    assert command_of("reference")


def test_every_adapter_is_one_small_module() -> None:
    for target in adapters.REGISTERED.values():
        spec = importlib.util.find_spec(target.partition(":")[0])
        assert spec is not None
        assert spec.origin is not None
        assert len(Path(spec.origin).read_text("utf-8").splitlines()) < 300

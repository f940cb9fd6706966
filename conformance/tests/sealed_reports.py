"""Reports of toy runtimes for the tests of verification, and a tamperer who knows how reports are sealed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_cases import CASES, OPTIONAL

from mutcache.requirements import Profile
from mutcache_conformance import cases as corpus
from mutcache_conformance import manifest, mustpass, report, report_html
from mutcache_conformance.adapters import command_of
from mutcache_conformance.case import Case
from mutcache_conformance.evidence import Evidence
from mutcache_conformance.mustpass import Required
from mutcache_conformance.runner import Configuration, Runner
from mutcache_conformance.verify import Verification, verify

Path_ = tuple[str | int, ...]
CONFIGURATION: Mapping[str, Any] = {
    "argv": ["--runtime=toy"],
    "nonce": 0,
    "step_timeout": 30.0,
    "case_timeout": 120.0,
    "restarts": 100,
    "hangs": 20,
    "options": {},
    "shard": "1/1",
    "order": "suite",
    "resumed": 0,
    "parts": [],
    "workers": 1,
}
PRODUCT = {"vendor": "V", "name": "N", "version": "1", "url": "https://example.com", "contact": "c@example.com"}


def replace_corpus(patch: pytest.MonkeyPatch) -> None:
    """Put the toy cases in the place of the corpus."""
    entries = tuple(Required(case.id, case.requirements, "") for case in CASES.values() if case is not OPTIONAL)
    patch.setattr(corpus, "generate", cases_of)
    patch.setattr(mustpass, "profiles", lambda: (Profile.DENSE,))
    patch.setattr(mustpass, "required_cases", lambda _: entries)


def cases_of(_: int) -> tuple[Case, ...]:
    return tuple(CASES.values())


def make(
    folder: Path, runtime: str, cases: Sequence[Case] = tuple(CASES.values()), *, step_timeout: float = 30.0
) -> Path:
    """Run cases on a runtime, and write the report into the folder."""
    configuration = Configuration(command_of(runtime), folder, step_timeout=step_timeout)
    with Runner(configuration, {case.id: case for case in cases}) as runner:
        results = {case.id: runner.run(case) for case in cases}
        about = runner.describe()
    run = report.Run(
        runtime, about, cases, results, (Profile.DENSE,), configuration=dict(CONFIGURATION), product=PRODUCT
    )
    report.write(run, folder)
    return folder


def read(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return data


def write(folder: Path, data: Mapping[str, Any]) -> None:
    (folder / "report.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def reseal(folder: Path, data: dict[str, Any]) -> None:
    """Make all again that a forger can make again: digests of evidence, footer, page and manifest."""
    for result in data["results"]:
        result["evidence_sha256"] = Evidence.from_json(result["evidence"]).digest()
    data.pop("footer")
    data["footer"] = report.footer(data)
    write(folder, data)
    (folder / "report.html").write_text(report_html.render(data, folder), encoding="utf-8")
    manifest.write(folder)


def check(folder: Path, **options: Any) -> Verification:
    return verify(folder, cases_of, **options)


def problems(folder: Path, **options: Any) -> list[str]:
    found = check(folder, **options).problems
    return [f"{name}: {problem}" for name, told in found.items() for problem in told]


def members(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The paths of all leaves, and of all empty objects and arrays."""
    items: Any = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    is_leaf = True
    for key, value in items:
        is_leaf = False
        yield from members(value, (*path, key))
    if is_leaf:
        yield path


def get(data: Any, path: Path_) -> Any:
    for key in path:
        data = data[key]
    return data


def put(data: Any, path: Path_, value: Any) -> None:
    get(data, path[:-1])[path[-1]] = value

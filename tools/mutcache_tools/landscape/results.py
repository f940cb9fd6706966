"""The committed results of a runtime: what a report of the suite says of it, without the evidence, and its probes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from mutcache_tools.landscape import FOLDER, Runtime
from mutcache_tools.landscape.probing import Observation

#: The statuses of cases that were played and did not pass.
FAILURES: Final = frozenset({"fail", "crash", "timeout", "harness-error"})
#: Addresses differ from run to run, and say nothing.
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
#: Characters of a reason, and cases that are named, of each cause.
_REASON: Final = 800
_NAMED: Final = 6


def condense(
    runtime: Runtime, report: Mapping[str, Any], observations: Iterable[Observation], *, date: str
) -> dict[str, Any]:
    """What is committed of a run of the suite and of the probes.

    Args:
        runtime: the runtime.
        report: the content of ``report.json``.
        observations: what its probes saw.
        date: the day, as YYYY-MM-DD.
    """
    machine = report["environment"]
    return {
        "runtime": runtime.name,
        "title": runtime.title,
        "adapter": report["runtime"],
        "measured": {
            "date": date,
            "versions": runtime.versions(),
            "machine": f"{machine['machine']}, {machine['cpus']} CPUs, {machine['cpu']}, {machine['python']}",
        },
        "suite": {"cases_sha256": report["suite"]["cases_sha256"], "options": report["configuration"]["options"]},
        "profiles": [
            {key: profile[key] for key in ("profile", "verdict", "required", "passed")}
            for profile in report["claim"]["profiles"]
        ],
        "results": {result["case"]: result["status"] for result in report["results"]},
        "causes": _causes(report["results"]),
        "observations": [observation.to_json() for observation in observations],
    }


def _causes(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What did not pass, by requirement and cause: how many cases, the first of them, and why the first failed."""
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for result in results:
        if result["status"] == "pass":
            continue
        cause = _plain(result["cause"] or result["reason"].splitlines()[0])
        key = result["requirements"][0], result["status"], cause
        if key not in groups:
            groups[key] = {
                "requirement": key[0],
                "status": key[1],
                "cause": cause,
                "count": 0,
                "cases": [],
            }
            if result["status"] in FAILURES:
                groups[key]["reason"] = _plain(result["reason"])[:_REASON]
        groups[key]["count"] += 1
        if len(groups[key]["cases"]) < _NAMED:
            groups[key]["cases"].append(result["case"])
    return sorted(groups.values(), key=lambda group: (group["requirement"], group["status"], -group["count"]))


def _plain(text: str) -> str:
    return _ADDRESS.sub("(address)", text)


def path_of(name: str, root: Path) -> Path:
    """Where the results of a runtime are committed."""
    return root / FOLDER / f"{name}.json"


def read(name: str, root: Path) -> dict[str, Any] | None:
    """The committed results of a runtime, or None."""
    path = path_of(name, root)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write(name: str, results: Mapping[str, Any], root: Path) -> None:
    """Commit results to their file."""
    path = path_of(name, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

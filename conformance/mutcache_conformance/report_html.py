"""``report.html``: a report as one page that needs nothing beside it, for people and for paper.

The page is made from ``report.json`` and, for the bytes of failing cases, from the files in ``failures/``; the same
files give the same page, so that it can be checked by making it again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2

from mutcache.requirements import Level, Req
from mutcache_conformance import report_charts, wording
from mutcache_conformance.status import Status

#: So many failing cases are shown with their evidence, and so many of one cause.
_DETAILED: Final = 200
_OF_A_CAUSE: Final = 12
#: Bytes of a line of a hexadecimal listing.
_LINE: Final = 16
_LARGEST: Final = 64 << 20
#: What a square of the matrix bears, for those who see no colors.
_SIGNS: Final[Mapping[str, str]] = {
    "pass": "",
    "fail": "x",
    "crash": "!",
    "timeout": "t",
    "unsupported": "u",
    "not-applicable": "n",
    "waived": "w",
    "harness-error": "?",
    "not-run": "-",
}
_ABOUT: Final[Mapping[str, str]] = {
    "dense": "tensor caches: proto, aliases, access, shapes, planning, binding, updates",
    "flow": "caches through If, Loop, Scan and functions",
    "paged": "paged caches of quantized pages",
    "heterogeneous": "pages of different quantizations in one cache",
    "memory": "memory that updates take, measured from outside",
    "concurrency": "leases and runs that overlap in time",
}


class PageError(ValueError):
    """No page can be made of a report."""


def render(report: Mapping[str, Any], folder: Path | None = None) -> str:
    """The page.

    Args:
        report: the content of report.json.
        folder: the report folder, for the bytes of failing cases; None leaves them out.

    Raises:
        PageError: the report says something that no page can show; none that a run wrote does.
    """
    try:
        return _template().render(**_context(report, folder))
    except Exception as error:  # numbers that are too large, words that are no numbers: a forger can think of anything
        raise PageError(f"{type(error).__name__}: {error}") from error


def _context(report: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """What the template is given."""
    failed = [result for result in report["results"] if Status(result["status"]).is_failure]
    advice = [result["case"] for result in failed if _is_advice(result)]
    causes = _causes(failed, folder)
    device = wording.device_of(report)
    return {
        "report": report,
        "headline": _headline(report),
        "tone": _tone(report),
        "about": _ABOUT,
        "signs": _SIGNS,
        "sentences": {requirement.value: requirement.entry.sentence.replace("``", "") for requirement in Req},
        "results": {result["case"]: result for result in report["results"]},
        "failed": failed,
        "advice": advice,
        "causes": causes,
        "shown": {one["result"]["case"] for cause in causes for one in cause["details"]},
        "areas": _areas(report),
        "memory": [chart for result in report["results"] if (chart := report_charts.of(result))],
        "seconds": sum(result["duration"] for result in report["results"]),
        "device": device,
        "on_reported": wording.on_reported(device),
        "whose_word": wording.on_whose_word(device),
    }


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"count": _count, "size": report_charts.size, "percent": _percent}
    source = (files("mutcache_conformance") / "templates" / "report.html.j2").read_text("utf-8")
    return environment.from_string(source)


def _headline(report: Mapping[str, Any]) -> str:
    """The verdict in one sentence."""
    name = _subject(report)
    claim = report["claim"]
    if claim["selection"]:
        return f"{name} was tried on a selection of cases, from which no verdict follows."
    good = [verdict["profile"] for verdict in claim["profiles"] if verdict["verdict"] == "conformant"]
    bad = [verdict["profile"] for verdict in claim["profiles"] if verdict["verdict"] != "conformant"]
    if not good:
        return f"{name} does not conform to the {_profiles(bad)} of the specification."
    rests = {verdict["profile"]: verdict["rests_on_reported_evidence"] for verdict in claim["profiles"]}
    qualified = [profile for profile in good if rests[profile]]
    words = f", {wording.on_reported(wording.device_of(report))}" if qualified else ""
    if qualified not in ([], good):
        words += f" of {_listed(qualified)}"
    if not bad:
        return f"{name} conforms to the {_profiles(good)} of the specification{words}."
    return f"{name} conforms to the {_profiles(good)}{words}, and does not conform to the {_profiles(bad)}."


def _subject(report: Mapping[str, Any]) -> str:
    named = report["product"] or {}
    about = report["runtime"] or {"runtime": "The runtime", "runtime_version": ""}
    if named:
        return f"{named['vendor']} {named['name']} {named['version']}"
    return f"{about['runtime']} {about['runtime_version']}".strip()


def _profiles(names: list[str]) -> str:
    return f"profile{'s' if len(names) > 1 else ''} {_listed(names)}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _tone(report: Mapping[str, Any]) -> str:
    verdicts = {verdict["verdict"] for verdict in report["claim"]["profiles"]}
    if verdicts == {"conformant"}:
        return "good"
    return "none" if verdicts <= {"no verdict"} else "bad"


def _causes(failed: Iterable[Mapping[str, Any]], folder: Path | None) -> list[dict[str, Any]]:
    """Failures with one status and cause together, the largest group first.

    Of each group some are shown with their evidence; of cases that fail only because their twins do, none.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in failed:
        groups.setdefault((result["status"], result["cause"] or "without a stated cause"), []).append(result)
    made = []
    left = _DETAILED
    for (status, cause), results in sorted(groups.items(), key=lambda group: (_follows(group[1]), -len(group[1]))):
        shown = [] if _follows(results) else results[: min(left, _OF_A_CAUSE)]
        left -= len(shown)
        made.append(
            {
                "status": status,
                "cause": cause,
                "cases": [result["case"] for result in results],
                "details": [_detail(result, folder) for result in shown],
                "others": [result["case"] for result in results[len(shown) :]],
            }
        )
    return made


def _is_advice(result: Mapping[str, Any]) -> bool:
    """Whether it fails a case of what a runtime SHOULD do, which stands in the way of nothing."""
    requirement = result["requirements"][0]
    known = requirement in Req.__members__.values()
    return result["status"] == "fail" and known and Req(requirement).level is Level.SHOULD


def _follows(results: list[Mapping[str, Any]]) -> bool:
    """Whether cases fail only because their valid twins do."""
    return not any(result["evidence"] or result["failure"] for result in results)


def _areas(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the matrix by area, in the order of the requirements."""
    areas: dict[str, list[Mapping[str, Any]]] = {}
    for row in report["requirements"]:
        areas.setdefault(row["requirement"].split("-")[1], []).append(row)
    return [{"name": name, "rows": rows} for name, rows in areas.items()]


def _detail(result: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """A failing case with its evidence and its bytes."""
    steps = []
    for step in result["evidence"]:
        observations = [one | {"holds": one["expected"] == one["found"]} for one in step["observations"]]
        steps.append({**step, "observations": observations, "holds": all(one["holds"] for one in observations)})
    dumps = _dumps(folder / result["failure"]) if folder is not None and result["failure"] else []
    return {"result": result, "steps": steps, "dumps": dumps, "chart": report_charts.of(result)}


def _dumps(folder: Path) -> list[dict[str, Any]]:
    """Both sides of what differs, around the first byte that does."""
    try:
        told = json.loads((folder / "compared.json").read_text(encoding="utf-8"))
        return [dump for one in told if one["differing_bytes"] and (dump := _dump(folder, one))]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # the page does without what cannot be read


def _dump(folder: Path, told: Mapping[str, Any]) -> dict[str, Any]:
    sides = {}
    for side in ("expected", "found"):
        path = (folder / told[side]).resolve()
        if not path.is_relative_to(folder.resolve()) or path.stat().st_size > _LARGEST:
            return {}
        sides[side] = path.read_bytes()
    first = told["first_difference"]["byte"]
    start = max(0, first // _LINE - 1) * _LINE
    lines = []
    for at in range(start, min(len(sides["expected"]), start + 4 * _LINE), _LINE):
        pairs = list(zip(sides["expected"][at : at + _LINE], sides["found"][at : at + _LINE], strict=False))
        lines.append(
            {
                "offset": f"{at:#08x}",
                "expected": [(f"{must:02x}", must != is_) for must, is_ in pairs],
                "found": [(f"{is_:02x}", must != is_) for must, is_ in pairs],
            }
        )
    counts = {"bytes": int(told["bytes"]), "differing": int(told["differing_bytes"])}
    return {"subject": str(told["subject"]), **counts, "lines": lines}


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _percent(value: float) -> str:
    return f"{round(value, 3) + 0.0:.1%}"  # no -0.0%

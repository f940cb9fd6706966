"""One report from the parts of one run: ``--shard 1/N`` to ``--shard N/N``, on one machine or on several alike."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mutcache.requirements import Profile
from mutcache_conformance import cases, manifest, provenance, report, verify_results
from mutcache_conformance.adapter import Description
from mutcache_conformance.report import Run
from mutcache_conformance.status import CaseResult
from mutcache_conformance.wording import one_line

#: What must be the same in all parts of a run. The path to Python need not: machines may differ in it.
_SAME: Final[Mapping[str, Callable[[Mapping[str, Any]], object]]] = {
    "specification": lambda part: part["claim"]["specification"],
    "profiles": lambda part: [one["profile"] for one in part["claim"]["profiles"]],
    "product": lambda part: part["product"],
    "runtime": lambda part: part["runtime"],
    "adapter": lambda part: (part["adapter"]["runtime"], part["adapter"]["protocol"], part["adapter"]["source"]),
    # Where the files of the suite come from is not what they are: the report of one part can lie in the checkout.
    "suite": lambda part: {key: value for key, value in part["suite"].items() if key != "origin"},
    "Python": lambda part: part["environment"]["python"],
    "machine": lambda part: part["environment"]["machine"],
    "GPUs": lambda part: part["environment"]["gpus"],
    "packages": lambda part: part["environment"]["packages"],
    "variables": lambda part: part["environment"]["variables"],
    # The parts of one run may be made on different days.
    "waivers": lambda part: [{key: value for key, value in one.items() if key != "read"} for one in part["waivers"]],
    "nonce": lambda part: part["configuration"]["nonce"],
    "runtime options": lambda part: part["configuration"]["options"],
    "case order": lambda part: part["configuration"]["order"],
    "step timeout": lambda part: part["configuration"]["step_timeout"],
    "case timeout": lambda part: part["configuration"]["case_timeout"],
    "restarts": lambda part: (part["configuration"]["restarts"], part["configuration"]["hangs"]),
}
#: What a merged report takes from its first part as it is.
_INHERITED: Final = ("product", "adapter", "environment")
_FOLDERS: Final = ("failures", "logs")
#: So many problems of one kind are told of a part.
_TOLD: Final = 5


class MergeError(ValueError):
    """Reports are not the parts of one run.

    Attributes:
        problems: everything that keeps them from being merged, one sentence each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(map(one_line, problems))
        super().__init__("\n".join(["these are not the parts of one run:", *(f"  - {one}" for one in self.problems)]))


@dataclass(frozen=True, slots=True)
class _Part:
    """The report of one part."""

    folder: Path
    report: Mapping[str, Any]

    @property
    def shard(self) -> str:
        """The part that it is, as ``2/3``."""
        return str(self.report["configuration"]["shard"])


def merge(folders: Sequence[Path], out: Path) -> Run:
    """Write the report of all parts into a new folder ``out``, and return the run that it is of.

    Raises:
        MergeError: the folders are not all parts of one run, a part is not whole, or its verdicts do not follow from
            its evidence; or ``out`` lies in a part.
        OSError: ``out`` has something in it, or something cannot be read or written.
    """
    parts = _read(folders)
    around = [folder for folder in folders if out.resolve().is_relative_to(folder.resolve())]
    problems = (
        [f"{out} lies in {folder}, and would be a part of it" for folder in around]
        or list(_problems(parts))
        or list(_problems_of_results(parts))
    )
    if problems:
        raise MergeError(problems)
    run = _run(parts)
    out.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        for part in parts:
            for name in _FOLDERS:
                if (part.folder / name).is_dir():
                    shutil.copytree(part.folder / name, made / name, dirs_exist_ok=True)
        report.write(run, made)
        made.chmod(0o755)
        made.rename(out)  # onto nothing, or an empty folder
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return run


def _read(folders: Sequence[Path]) -> list[_Part]:
    parts, problems = [], []
    for folder in folders:
        try:
            part = _Part(folder, report.read_report(folder / "report.json"))
            problems += [f"{folder}: {problem}" for problem in manifest.problems(folder)]
        except (report.ReportError, manifest.ManifestError) as error:
            problems.append(str(error))
        else:
            parts.append(part)
    if problems:
        raise MergeError(problems)
    return sorted(parts, key=lambda part: int(part.shard.partition("/")[0]))


def _problems(parts: Sequence[_Part]) -> Iterator[str]:
    """What keeps the parts from being those of one run."""
    first = parts[0]
    for part in parts:
        selection = part.report["claim"]["selection"]
        if part.shard == "1/1":
            yield f"{part.folder} is no part: it was made without --shard"
        elif selection != f"--shard {part.shard}":
            yield f"{part.folder} is not all of part {part.shard}: {selection}"
    for what, value in _SAME.items():
        for part in parts[1:]:
            one, other = value(first.report), value(part.report)
            if one != other:
                yield f"{what}: {_short(one)} in {first.folder}, {_short(other)} in {part.folder}"
    counts = {part.shard.partition("/")[2] for part in parts}
    if len(counts) > 1:
        yield f"the parts are of {' and of '.join(sorted(counts))}"
        return
    (count,) = counts
    shards = [part.shard for part in parts]
    for index in range(1, int(count) + 1):
        shard = f"{index}/{count}"
        if shard not in shards:
            yield f"part {shard} is missing"
        elif shards.count(shard) > 1:
            named = ", ".join(str(part.folder) for part in parts if part.shard == shard)
            yield f"part {shard} is there {shards.count(shard)} times: {named}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]} ..."


def _problems_of_results(parts: Sequence[_Part]) -> Iterator[str]:
    """What keeps the results of the parts from being those of the whole run, as this suite knows it."""
    first = parts[0].report
    ours = provenance.suite(cases.generate(first["configuration"]["nonce"]))
    for key in ("cases_sha256", "mustpass_sha256", "not_applicable_sha256"):
        if ours[key] != first["suite"][key]:
            yield f"they were made by another version of the suite: {key} is not that of this one"
            return
    profiles = {one["profile"] for one in first["claim"]["profiles"]}
    everything = cases.generate(first["configuration"]["nonce"])
    for part in parts:
        index, count = map(int, part.shard.split("/"))
        due = {
            case.id
            for number, case in enumerate(everything)
            if number % count == index - 1 and case.profile.value in profiles
        }
        found = [result["case"] for result in part.report["results"]]
        if len(set(found)) != len(found):
            yield f"{part.folder} has a case twice"
        if due - set(found):
            yield f"{part.folder} lacks {len(due - set(found))} of its cases, {min(due - set(found))} among them"
        if set(found) - due:
            yield f"{part.folder} has cases that are not its own, {min(set(found) - due)} among them"
        for check, wrong in verify_results.problems(part.report, everything).items():
            yield from (f"{part.folder} is not sound: {check}: {problem}" for problem in wrong[:_TOLD])


def _run(parts: Sequence[_Part]) -> Run:
    first = parts[0].report
    configuration = dict(first["configuration"])
    runtime = configuration.pop("runtime")
    return Run(
        runtime=runtime,
        about=None if first["runtime"] is None else Description.from_json(first["runtime"]),
        cases=cases.generate(configuration["nonce"]),
        results={result["case"]: CaseResult.from_json(result) for part in parts for result in part.report["results"]},
        profiles=tuple(Profile(one["profile"]) for one in first["claim"]["profiles"]),
        configuration={
            **configuration,
            "argv": [],
            "shard": "1/1",
            "workers": max(part.report["configuration"]["workers"] for part in parts),
            "resumed": sum(part.report["configuration"]["resumed"] for part in parts),
            "parts": [
                {
                    "shard": part.shard,
                    "argv": part.report["configuration"]["argv"],
                    "environment": part.report["environment"],
                    "report_sha256": part.report["footer"]["sha256"],
                }
                for part in parts
            ],
        },
        waivers=first["waivers"],
        inherited={**{key: first[key] for key in _INHERITED}, "suite": {**first["suite"], "origin": _origin(parts)}},
    )


def _origin(parts: Sequence[_Part]) -> Mapping[str, Any]:
    """Where the suite of a part comes from of which least can be said: changed files before unknown ones."""
    order = (False, None, True)
    origins: list[Mapping[str, Any]] = [part.report["suite"]["origin"] for part in parts]
    return min(origins, key=lambda origin: order.index(origin["is_clean"]))

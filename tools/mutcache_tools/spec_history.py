"""The history of the specification: published versions, what changed since, and which text the tests follow.

Three files in ``spec/`` hold it. ``versions.json`` has the hash of every requirement's text in each published version;
``changes.toml`` says, for each requirement that is new, reworded or retired since the last one, why; ``reviewed.json``
has the text that each requirement's rules and cases were last looked at with. :func:`problems` compares them with the
specification as it is, and a test holds it to that.

``python -m mutcache_tools.spec_history --reviewed MC-AREA-NNN`` records a review, ``--publish VERSION`` a version.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mutcache.requirements import Req, Status
from mutcache_tools.generate import ROOT

VERSIONS: Final = Path("spec/versions.json")
CHANGES: Final = Path("spec/changes.toml")
REVIEWED: Final = Path("spec/reviewed.json")
#: What can happen to a requirement.
KINDS: Final = ("added", "reworded", "retired")


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one requirement after a version was published; ``version`` is "" until the next one is."""

    requirement: Req
    kind: str
    why: str
    version: str


@dataclass(frozen=True, slots=True)
class Version:
    """A published version: its number, its day (ISO 8601), and the hash of each text; retired ones are left out."""

    number: str
    date: str
    texts: Mapping[str, str]


def versions(root: Path = ROOT) -> list[Version]:
    """Every published version, the oldest first."""
    path = root / VERSIONS
    if not path.is_file():
        return []
    document = json.loads(path.read_text(encoding="utf-8"))
    return [Version(entry["number"], entry["date"], entry["texts"]) for entry in document["versions"]]


def changes(root: Path = ROOT) -> list[Change]:
    """Every recorded change.

    Raises:
        ValueError: an entry has no known requirement or kind, or gives no reason.
    """
    path = root / CHANGES
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("change", []) if path.is_file() else []
    return [_change(entry) for entry in entries]


def _change(entry: Mapping[str, Any]) -> Change:
    if entry.get("kind") not in KINDS or not entry.get("why"):
        raise ValueError(f"{CHANGES}: {dict(entry)}: an entry has requirement, kind ({', '.join(KINDS)}) and why")
    return Change(Req(entry["requirement"]), entry["kind"], entry["why"], entry.get("version", ""))


def texts() -> dict[str, str]:
    """The hash of each requirement's text as it is now, retired ones left out."""
    return {
        requirement.value: requirement.entry.text_hash
        for requirement in Req
        if requirement.entry.status is not Status.RETIRED
    }


def problems(root: Path = ROOT) -> Iterator[str]:
    """What is not recorded, one line each."""
    yield from _unrecorded(root)
    yield from _unreviewed(root)


def _unrecorded(root: Path) -> Iterator[str]:
    published = versions(root)
    if not published:
        yield f"{VERSIONS}: there is no published version"
        return
    before, now = published[-1].texts, texts()
    recorded = {(change.requirement.value, change.kind) for change in changes(root) if not change.version}
    happened = {(identifier, "added") for identifier in now.keys() - before.keys()}
    happened |= {(identifier, "retired") for identifier in before.keys() - now.keys()}
    happened |= {(key, "reworded") for key in now.keys() & before.keys() if now[key] != before[key]}
    for identifier, kind in sorted(happened - recorded):
        yield f"{CHANGES}: {identifier} was {kind} since version {published[-1].number}, and nothing says why"
    for identifier, kind in sorted(recorded - happened):
        yield f"{CHANGES}: {identifier} is said to be {kind}, and is not since version {published[-1].number}"


def _unreviewed(root: Path) -> Iterator[str]:
    path = root / REVIEWED
    reviewed = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for identifier, text_hash in texts().items():
        if Req(identifier).entry.status is Status.FINAL and reviewed.get(identifier) != text_hash:
            yield (
                f"{REVIEWED}: the text of {identifier} has moved since its rules and cases were reviewed: look at "
                f"them, then run python -m mutcache_tools.spec_history --reviewed {identifier}"
            )


def review(identifiers: Sequence[str], root: Path = ROOT) -> None:
    """Record that the rules and cases of these requirements fit their texts as they are."""
    path = root / REVIEWED
    reviewed = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    now = texts()
    reviewed.update({identifier: now[identifier] for identifier in identifiers})
    kept = {identifier: reviewed[identifier] for identifier in now if identifier in reviewed}
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def publish(number: str, root: Path = ROOT, *, date: str = "") -> None:
    """Record the specification as it is as a version; the changes before it belong to it from now on.

    Raises:
        ValueError: the number was published already.
    """
    published = versions(root)
    if number in {version.number for version in published}:
        raise ValueError(f"version {number} was published already")
    day = date or datetime.datetime.now(datetime.UTC).date().isoformat()
    entries = [
        {"number": version.number, "date": version.date, "texts": dict(version.texts)}
        for version in [*published, Version(number, day, texts())]
    ]
    (root / VERSIONS).write_text(json.dumps({"versions": entries}, indent=2) + "\n", encoding="utf-8")
    path = root / CHANGES
    if path.is_file():
        _stamp(path, number)


def _stamp(path: Path, number: str) -> None:
    """Say in each entry without a version that it came with this one."""
    blocks = path.read_text(encoding="utf-8").split("[[change]]")
    stamped = [
        block if index == 0 or "\nversion = " in block else f'\nversion = "{number}"{block}'
        for index, block in enumerate(blocks)
    ]
    path.write_text("[[change]]".join(stamped), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record a review or a version, or say what is not recorded."""
    parser = argparse.ArgumentParser(prog="python -m mutcache_tools.spec_history", description=__doc__.splitlines()[0])
    parser.add_argument("--reviewed", nargs="+", metavar="ID", default=[], help='requirement IDs, or "all"')
    parser.add_argument("--publish", metavar="VERSION", help="record the specification as it is")
    options = parser.parse_args(arguments)
    known = texts()
    identifiers = list(known) if options.reviewed == ["all"] else options.reviewed
    if unknown := [identifier for identifier in identifiers if identifier not in known]:
        parser.error(f"there is no requirement {unknown[0]}")
    if identifiers:
        review(identifiers)
    if options.publish:
        try:
            publish(options.publish)
        except ValueError as error:
            parser.error(str(error))
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

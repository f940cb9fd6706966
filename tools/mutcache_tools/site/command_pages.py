"""The reference of the command line and of the JSON schemas, from the parser and the schema files themselves."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mutcache_tools import cli
from mutcache_tools.commands import commands
from mutcache_tools.site.rst import heading, literal, plain, table

#: The schemas that programs may rely on, with what they describe; relative to the root of a checkout.
SCHEMAS: Final = {
    "tools/mutcache_tools/schemas": "output of commands with ``--format json``",
    "conformance/mutcache_conformance/schemas": "the conformance suite's files and messages",
}


def command_line() -> str:
    """Every command with its arguments."""
    parser = cli.parser(commands())
    lines = [*heading("The mutcache command"), "", parser.description or "", "", parser.epilog or ""]
    lines += [
        "",
        "Every command takes ``--format json``, for programs; what it prints then is described in :doc:`schemas`.",
    ]
    for name, sub in _subparsers(parser).items():
        lines += [*heading(f"mutcache {name}", "-"), "", plain(sub.description or ""), ""]
        lines += [".. code-block:: text", "", f"   {_usage(sub)}", ""]
        rows = [(_names(action), plain(_help(action))) for action in _arguments(sub)]
        if rows:
            lines += table(("argument", "meaning"), rows, widths=(32, 68))
    return "\n".join(lines) + "\n"


def _subparsers(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    # argparse has no public way to list what was added to it.
    action = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    choices: dict[str, argparse.ArgumentParser] = action.choices
    return choices


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.dest not in ("help", "format")]


def _usage(parser: argparse.ArgumentParser) -> str:
    return " ".join(parser.format_usage().removeprefix("usage:").split())


def _names(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.option_strings and action.nargs != 0 else "")
    shown = "".join(value) if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return literal(shown or action.dest)
    return ", ".join(literal(f"{name} {shown}".strip()) for name in action.option_strings)


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": "mutcache"} if action.help else ""
    return " ".join(text.split())


def schemas(root: Path) -> str:
    """Every committed schema: what it describes, and its members."""
    lines = [
        *heading("JSON schemas"),
        "",
        "The files are JSON Schema, draft 2020-12, and part of the installed packages. A format that changes gets",
        "another version; within one, members are added, and neither removed nor given another meaning.",
    ]
    for folder, what in SCHEMAS.items():
        for path in sorted((root / folder).glob("*.json")):
            document = json.loads(path.read_text(encoding="utf-8"))
            title = document.get("title", path.stem)
            lines += [*heading(title, "-"), "", f"``{folder}/{path.name}``: {what}.", ""]
            if description := document.get("description"):
                lines += [plain(description), ""]
            rows = list(_members(document))
            if rows:
                lines += table(("member", "type", "meaning"), rows, widths=(26, 18, 56))
    return "\n".join(lines) + "\n"


def _members(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    required = frozenset(schema.get("required", ()))
    for name, member in schema.get("properties", {}).items():
        kind = _kind(member)
        meaning = plain(member.get("description", ""))
        yield literal(name), kind, meaning if name in required else f"{meaning} *(optional)*".strip()


def _kind(member: Mapping[str, Any]) -> str:
    if "$ref" in member:
        return literal(member["$ref"].rpartition("/")[2])
    if "const" in member:
        return literal(json.dumps(member["const"]))
    kind = member.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else kind or ("one of" if "enum" in member else "")

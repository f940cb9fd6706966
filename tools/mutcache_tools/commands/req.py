"""``mutcache req ID``."""

from __future__ import annotations

import argparse

from mutcache_tools.commands import Command
from mutcache_tools.output import Output, UsageError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="for example MC-ALIAS-007; mc_alias_007 will do")


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.errors import MutcacheError
    from mutcache_tools.requirement_story import story

    try:
        found = story(options.id)
    except MutcacheError as error:
        raise UsageError(error.message, error.hint) from None
    output.show(found.to_json(), lambda: output.render(found.render()))
    return 0


COMMAND = Command(
    "req",
    "tell the story of one requirement",
    "Show a requirement's normative text, and where it is implemented and tested.",
    _add_arguments,
    _run,
)

"""The command line of the suite. Wrong usage ends the run with exit status 2."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest

#: Exit status for wrong usage, and for a runtime that cannot be started.
USAGE: Final = 2
START_TIMEOUT: Final = 120.0
STEP_TIMEOUT: Final = 30.0
CASE_TIMEOUT: Final = 120.0


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    runtime: str
    is_explicit: bool
    nonce: int
    folder: Path
    start_timeout: float
    step_timeout: float
    case_timeout: float
    adapter_options: Mapping[str, str]
    profiles: tuple[str, ...]
    shard: tuple[int, int]
    selection: str


def add_options(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("conformance", "conformance of runtimes of mutable execution caches")
    group.addoption(
        "--runtime",
        metavar="R",
        help="runtime under test: a registered name (default: reference), a Python adapter as module:Class, "
        "or an executable that speaks the protocol as cmd:COMMAND",
    )
    group.addoption("--runtime-option", metavar="KEY=VALUE", action="append", default=[], help="told to the adapter")
    group.addoption("--nonce", metavar="N", default="0", help="draw names, values and positions from N (default: 0)")
    group.addoption("--profile", metavar="P", action="append", default=[], help="claim this profile only (repeatable)")
    group.addoption("--shard", metavar="K/N", default="1/1", help="run the K-th of N parts; gives no verdict")
    group.addoption(
        "--start-timeout",
        metavar="S",
        default=str(START_TIMEOUT),
        help=f"seconds for a child to import its runtime and describe itself (default: {START_TIMEOUT:g})",
    )
    group.addoption(
        "--step-timeout", metavar="S", default=str(STEP_TIMEOUT), help=f"seconds per step (default: {STEP_TIMEOUT:g})"
    )
    group.addoption(
        "--case-timeout", metavar="S", default=str(CASE_TIMEOUT), help=f"seconds per case (default: {CASE_TIMEOUT:g})"
    )
    group.addoption(
        "--report",
        metavar="DIR",
        help="folder of the report (default: conformance-report, or its subfolder partial for a selection of cases)",
    )


def read_options(config: pytest.Config) -> Options:
    """The options, checked."""
    option = config.option
    runtime = option.runtime
    if runtime is not None:
        from mutcache_conformance.adapters import UnknownRuntime, command_of

        try:
            command_of(runtime)
        except UnknownRuntime as error:
            refuse(str(error))
    if not re.fullmatch(r"[0-9]{1,18}", option.nonce):
        refuse(f"--nonce {option.nonce!r} is not a number from 0 on")
    shard = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", option.shard)
    if shard is None or int(shard[1]) > int(shard[2]):
        refuse(f"--shard {option.shard!r} is not K/N with K from 1 to N")
    for name, value in (
        ("--start-timeout", option.start_timeout),
        ("--step-timeout", option.step_timeout),
        ("--case-timeout", option.case_timeout),
    ):
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", value) or not float(value):
            refuse(f"{name} {value!r} is not a number of seconds")
    pairs = [pair.partition("=") for pair in option.runtime_option]
    if not all(key and equals for key, equals, _ in pairs):
        refuse(f"--runtime-option {option.runtime_option[-1]!r} is not KEY=VALUE")
    if option.profile:
        from mutcache_conformance import mustpass

        known = [profile.value for profile in mustpass.profiles()]
        unknown = sorted(set(option.profile) - set(known))
        if unknown:
            refuse(f"--profile {unknown[0]!r} is not known; there are cases for {', '.join(known)}")
    selection = _selection(config)
    folder = option.report or ("conformance-report/partial" if selection else "conformance-report")
    return Options(
        runtime=runtime or "reference",
        is_explicit=runtime is not None,
        nonce=int(option.nonce),
        folder=config.invocation_params.dir / folder,
        start_timeout=float(option.start_timeout),
        step_timeout=float(option.step_timeout),
        case_timeout=float(option.case_timeout),
        adapter_options={key: value for key, _, value in pairs},
        profiles=tuple(option.profile),
        shard=(int(shard[1]), int(shard[2])),
        selection=selection,
    )


def prepare_folder(folder: Path) -> None:
    """Make the folder of the report, before anything is run whose result could not be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        refuse(f"the report cannot be written to {str(folder)!r}: {error.strerror or error}")


def refuse(message: str) -> NoReturn:
    """End the run: it is asked for something that cannot be."""
    pytest.exit(message, returncode=USAGE)


def _selection(config: pytest.Config) -> str:
    """How the user restricted the cases, or ""."""
    option = config.option
    for name, value in (
        ("-k", option.keyword),
        ("-m", option.markexpr),
        ("--deselect", option.deselect),
        ("--shard", option.shard if option.shard != "1/1" else ""),
        ("--last-failed", getattr(option, "lf", False)),
        ("--stepwise", getattr(option, "stepwise", False)),
        ("--maxfail", option.maxfail),
    ):
        if value:
            return name if value is True else f"{name} {value}"
    named = [argument for argument in config.args if "::" in argument or _is_suite_module(argument)]
    return " ".join(named)


def _is_suite_module(argument: str) -> bool:
    return argument.endswith(".py") or argument.startswith("mutcache_conformance.suite.")

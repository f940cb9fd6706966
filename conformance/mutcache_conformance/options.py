"""The command line of the suite. Wrong usage ends the run with exit status 2."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from mutcache_conformance.environment import as_text

if TYPE_CHECKING:
    from mutcache_conformance.waivers import Waiver

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
    #: What the cases are put in a random order from; "" is the order of the suite.
    order_seed: str
    waivers: tuple[Waiver, ...]
    is_resumed: bool
    product: Mapping[str, str] | None


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
    group.addoption(
        "--resume",
        metavar="DIR",
        help="go on with the interrupted run whose report folder is DIR; all else must be asked for as it was then",
    )
    group.addoption(
        "--product", metavar="FILE", help="the product that the report is about, as product.toml describes it"
    )
    group.addoption(
        "--waivers",
        metavar="FILE",
        help="failures that are put up with, as waivers.toml (default: NAME.waivers.toml beside a registered adapter)",
    )
    group.addoption(
        "--case-order",
        metavar="ORDER",
        default="suite",
        help="order in which cases run: suite, or random:SEED; verdicts do not depend on it (default: suite)",
    )


def read_options(config: pytest.Config) -> Options:
    """The options, checked."""
    option = config.option
    runtime = option.runtime
    if runtime is not None:
        for argument in config.invocation_params.args:
            if as_text(str(argument)) != str(argument):
                refuse(f"{argument!a} is not UTF-8, and so no report can say what was asked for")
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
    order = re.fullmatch(r"suite|random:([0-9]{1,18})", option.case_order)
    if order is None:
        refuse(f"--case-order {option.case_order!r} is neither suite nor random:SEED with a number as seed")
    if option.resume is not None and option.report not in (None, option.resume):
        refuse("--resume says which report folder it is: leave --report out")
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
    folder = option.resume or option.report or ("conformance-report/partial" if selection else "conformance-report")
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
        order_seed=order[1] or "",
        waivers=_waivers(runtime or "reference", option.waivers, config.invocation_params.dir),
        is_resumed=option.resume is not None,
        product=_product(option.product, config.invocation_params.dir),
    )


def _product(given: str | None, folder: Path) -> Mapping[str, str] | None:
    """The product that the run is about, if it is told."""
    if given is None:
        return None
    from mutcache_conformance import provenance

    try:
        return provenance.read_product(folder / given)
    except OSError as error:
        refuse(f"--product {given!r} cannot be read: {error.strerror}")
    except provenance.ProductError as error:
        refuse(f"--product: {error}")


def _waivers(runtime: str, given: str | None, folder: Path) -> tuple[Waiver, ...]:
    """The waivers of the run; none of them is out of date, or for a case that there is not."""
    from mutcache_conformance import adapters

    if given is not None:
        file = folder / given
    elif runtime in adapters.REGISTERED:
        file = Path(adapters.__file__).with_name(f"{runtime}.waivers.toml")
        if not file.is_file():
            return ()
    else:
        return ()
    from mutcache_conformance import cases, waivers

    try:
        return waivers.read(file, [case.id for case in cases.generate(0)], datetime.datetime.now(datetime.UTC).date())
    except waivers.WaiverError as error:
        refuse(str(error))


def prepare_folder(folder: Path) -> int:
    """Take the folder of the report, before anything is run whose result could not be kept; see ``prepare``."""
    from mutcache_conformance import report_folder

    try:
        return report_folder.prepare(folder)
    except report_folder.FolderError as error:
        refuse(f"the report cannot be written to {str(folder)!r}: {error}")


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
        ("--ignore", option.ignore),
        ("--ignore-glob", option.ignore_glob),
        ("--shard", option.shard if option.shard != "1/1" else ""),
        ("--last-failed", getattr(option, "lf", False)),
        ("--stepwise", getattr(option, "stepwise", False)),
        ("--maxfail", option.maxfail),
    ):
        if value:
            return name if value is True else f"{name} {' '.join(value) if isinstance(value, list) else value}"
    named = [argument for argument in config.args if "::" in argument or _is_suite_module(argument)]
    return " ".join(named)


def _is_suite_module(argument: str) -> bool:
    return argument.endswith(".py") or argument.startswith("mutcache_conformance.suite.")

"""``mutcache certify --runtime R --out DIR``."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from mutcache_tools.commands import Command
from mutcache_tools.output import Format, Output, UsageError

#: Options of the suite that are passed on as they are.
_PASSED_ON = ("product", "waivers", "resume", "shard", "case_order", "start_timeout", "step_timeout", "case_timeout")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime",
        required=True,
        metavar="R",
        help="a registered name (reference), a Python adapter as module:Class, or an executable as cmd:COMMAND",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the report; with --resume it is that of the run")
    parser.add_argument("--profiles", default="", metavar="P,Q", help="profiles to claim (default: all that there are)")
    parser.add_argument(
        "--nonce", type=_nonce, metavar="N", help="draw names, values and positions from N (default: draw it, too)"
    )
    parser.add_argument("--product", metavar="FILE", help="product.toml, which says what product the claim is for")
    parser.add_argument("--sign", metavar="KEY", help="sign the report with this Ed25519 private key (PEM)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that run cases at once")
    parser.add_argument(
        "--runtime-option", action="append", default=[], metavar="KEY=VALUE", help="told to the adapter"
    )
    parser.add_argument("--waivers", metavar="FILE", help="failures that are put up with, as waivers.toml")
    parser.add_argument("--resume", metavar="DIR", help="go on with the interrupted run whose report folder is DIR")
    parser.add_argument("--shard", metavar="K/N", help="run the K-th of N parts; see mutcache merge")
    parser.add_argument("--case-order", metavar="ORDER", help="suite, or random:SEED")
    parser.add_argument("--start-timeout", metavar="S", help="seconds for the runtime to start")
    parser.add_argument("--step-timeout", metavar="S", help="seconds per step")
    parser.add_argument("--case-timeout", metavar="S", help="seconds per case")


def _nonce(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache_conformance import report_folder
    from mutcache_tools import certification

    folder = Path(options.resume or options.out or "")
    if not (options.resume or options.out):
        raise UsageError("no folder for the report", "--out DIR")
    if options.resume and options.out and Path(options.out).absolute() != Path(options.resume).absolute():
        raise UsageError("--resume says which report folder it is", "leave --out out")
    if options.sign and options.shard not in (None, "1/1"):
        raise UsageError("a part has no verdict that could be signed", "leave --sign out")
    if options.workers < 1:
        raise UsageError(f"--workers {options.workers} is not a number from 1 on")
    key = certification.private_key(options.sign)
    nonce = _chosen_nonce(options)
    arguments = [f"--runtime={options.runtime}", f"--nonce={nonce}"]
    arguments += [f"--profile={profile}" for profile in options.profiles.split(",") if profile]
    arguments += [f"--runtime-option={pair}" for pair in options.runtime_option]
    for name in _PASSED_ON:
        value = getattr(options, name)
        if value is not None:
            arguments.append(f"--{name.replace('_', '-')}={value}")
    if not options.resume:
        arguments.append(f"--report={folder}")
    code = certification.run_suite(arguments, workers=options.workers, quiet=output.form is Format.JSON)
    if code not in (0, 1):
        if (code == certification.INTERRUPTED or code < 0) and (folder / report_folder.JOURNAL).is_file():
            print(f"results so far are kept; to go on:\n  {_resumption(options, folder)}", file=sys.stderr)
        if output.form is Format.JSON:
            output.error(f"the suite ended with exit code {code}", hint="standard error says why")
        return code
    is_signed = key is not None
    if key is not None:
        certification.sign(folder, key)
    output.show(certification.outcome(folder, signed=is_signed), lambda: _tell(output, folder, nonce, signed=is_signed))
    return code


def _resumption(options: argparse.Namespace, folder: Path) -> str:
    """The command that goes on with an interrupted run: the same, but for its folder."""
    names = ("runtime", "profiles", *(name for name in _PASSED_ON if name != "resume"), "sign")
    given = [(name.replace("_", "-"), getattr(options, name)) for name in names]
    words = [f"--{name}={value}" for name, value in given if value]
    words += [f"--runtime-option={pair}" for pair in options.runtime_option]
    words += [f"--workers={options.workers}"] if options.workers > 1 else []
    return shlex.join(["mutcache", "certify", *words, f"--resume={folder}"])


def _chosen_nonce(options: argparse.Namespace) -> int:
    """The nonce that is asked for, else that of the run that is to go on, else one that is drawn."""
    from mutcache_conformance import journal
    from mutcache_tools import certification

    if options.nonce is not None:
        return int(options.nonce)
    if not options.resume:
        return certification.draw_nonce()
    try:
        return journal.nonce_of(Path(options.resume))
    except journal.JournalError as error:
        raise UsageError(str(error)) from None


def _tell(output: Output, folder: Path, nonce: int, *, signed: bool) -> None:
    output.line("page:   ", f"{folder}/report.html")
    output.line("nonce:  ", str(nonce), (" (--nonce repeats the same cases)", "dim"))
    if signed:
        output.line("signed: ", f"{folder}/statement.json, signature.json")
    output.line("check:  ", f"mutcache verify {folder}")


COMMAND = Command(
    "certify",
    "run the conformance suite on a runtime, and write the report",
    "Run the whole conformance suite on a runtime and write a report folder that anyone can check without the runtime. "
    "Exit code 0 when every claimed profile is conformant, 1 when one is not, 2 for wrong usage or a runtime that "
    "cannot be started.",
    _add_arguments,
    _run,
)

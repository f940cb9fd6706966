"""The ``mutcache`` command.

Exit codes of every command: 0 fine (warnings included), 1 the model or an input of it was refused, 2 wrong usage or a
file that cannot be read or written. Bad input gives a message, never a traceback.

Nothing heavy is imported before the command is known: see `mutcache_tools.commands`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from mutcache_tools.commands import Command, commands
from mutcache_tools.output import Format, Output, UsageError

#: Packages that only some commands need, and the extra of this distribution that brings each.
_EXTRAS = {"jsonschema": "conformance", "jinja2": "conformance", "pytest": "conformance", "cryptography": "sign"}
#: What a shell reports for a process that SIGPIPE or SIGINT ended.
EXIT_PIPE, EXIT_INTERRUPT = 128 + 13, 128 + 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Wrong usage raises SystemExit(2), as argparse does."""
    options = parser(commands()).parse_args(arguments)
    output = Output(options.format)
    try:
        code = _run(options.command, options, output)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left (``| head``). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except KeyboardInterrupt:
        print("mutcache: interrupted", file=sys.stderr)
        return EXIT_INTERRUPT
    return code


def parser(available: Sequence[Command]) -> argparse.ArgumentParser:
    """The argument parser; the chosen command stands in ``command``."""
    top = argparse.ArgumentParser(
        prog="mutcache",
        description="Check, convert and run ONNX models with mutable execution caches.",
        epilog="Exit codes: 0 fine, 1 the model or an input was refused, 2 wrong usage or an unreadable file.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action=_Version, help="show the version and exit")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    for command in available:
        sub = subparsers.add_parser(
            command.name, help=command.help, description=command.description, allow_abbrev=False
        )
        sub.add_argument(
            "--format",
            type=Format,
            choices=list(Format),
            default=Format.TEXT,
            metavar="{text,json}",
            help="text for people (default), json for programs",
        )
        command.add_arguments(sub)
        sub.set_defaults(command=command)
    return top


def _run(command: Command, options: argparse.Namespace, output: Output) -> int:
    """Run one command and turn what it refuses into a message and an exit code."""
    try:
        return command.run(options, output)
    except UsageError as error:
        output.error(error.message, hint=error.hint)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        name = error.filename2 or error.filename
        output.error(f"{os.fspath(name)!r}: {error.strerror}" if name is not None else str(error))
        return 2
    except MemoryError as error:
        output.error(f"not enough memory: {error}" if str(error) else "not enough memory")
        return 2
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        output.error(
            f"the package {error.name!r} is not installed", hint=f"pip install 'mutcache[{_EXTRAS[error.name]}]'"
        )
        return 2
    except RecursionError:
        output.error("the model nests or calls too deeply to be read")
        return 2
    except Exception as error:
        from mutcache.errors import CheckError, DecodeError, MutcacheError

        if isinstance(error, CheckError):
            output.diagnostics(getattr(options, "model", ""), error.diagnostics)
            return 1
        if isinstance(error, MutcacheError):
            output.error(error.message, requirement=error.requirement, hint=error.hint)
            return 2 if isinstance(error, DecodeError) else 1
        raise


class _Version(argparse.Action):
    """``--version``, which looks the version up only when asked."""

    def __init__(self, option_strings: Sequence[str], **keywords: Any) -> None:
        super().__init__(option_strings, **keywords | {"nargs": 0, "dest": argparse.SUPPRESS})

    def __call__(self, *_: object) -> NoReturn:
        from importlib import metadata

        import onnx

        from mutcache.proto import IR_VERSION

        try:
            version = metadata.version("mutcache")
        except metadata.PackageNotFoundError:
            version = "(a checkout that is not installed)"
        print(f"mutcache {version}, IR version {IR_VERSION}, onnx {onnx.__version__}")
        sys.exit(0)

"""The commands of ``mutcache``, one module each.

A command's module is cheap to import: it describes arguments, and imports what it works with when it runs. So
``mutcache --help`` loads neither onnx nor numpy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from mutcache_tools.output import Output

#: Module names, in the order in which ``mutcache --help`` lists them.
MODULES = (
    "check",
    "show",
    "plan",
    "sort",
    "convert",
    "lower",
    "strip",
    "run",
    "greedy",
    "req",
    "certify",
    "verify",
    "compare",
    "merge",
    "smoke",
    "export",
    "bench",
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what it is called, takes, and does.

    Attributes:
        name: the word on the command line.
        help: one line for the list of commands.
        description: what ``mutcache NAME --help`` begins with.
        add_arguments: adds the command's own arguments; a model it reads is called ``model``.
        run: does the work and returns the exit code; raises MutcacheError, UsageError or OSError to refuse.
    """

    name: str
    help: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Output], int]


def commands() -> tuple[Command, ...]:
    """Every command; each module has its own in ``COMMAND``."""
    return tuple(import_module(f"{__name__}.{name}").COMMAND for name in MODULES)

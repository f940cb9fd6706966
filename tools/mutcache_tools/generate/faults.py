"""``conformance/FAULTS.md``: how the faulty runtimes of the harness's tests are found out.

It runs each of them, which takes some seconds; the tests that run them anyway compare what they see with the file.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from mutcache_tools.generate import ROOT, Files, SourceError

TABLE = Path("conformance/FAULTS.md")


def generate() -> Files:
    """The table."""
    folder = str(ROOT / "conformance" / "tests")
    if folder not in sys.path:  # the runtimes are modules of the tests, which no package holds
        sys.path.insert(0, folder)
    try:
        made: str = importlib.import_module("fault_table").make()
    except ValueError as error:
        raise SourceError(str(error)) from error
    return {TABLE: made}

"""``python -m mutcache_tools.generate [--check] [NAME ...]``."""

from __future__ import annotations

import argparse
import sys

from mutcache_tools.generate import SourceError, generators, stale_files, write_files


def main(arguments: list[str] | None = None) -> int:
    """Write, or with ``--check`` compare, the generated files; returns the exit code."""
    available = generators()
    parser = argparse.ArgumentParser(prog="python -m mutcache_tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a stale file")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"generators to run: {', '.join(available)}")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(available))
    if unknown:
        parser.error(f"unknown generator {', '.join(unknown)}; choose from {', '.join(available)}")
    stale_count = 0
    for name in options.names or available:
        try:
            files = available[name]()
        except SourceError as error:
            print(error, file=sys.stderr)
            return 1
        for path in stale_files(files):
            stale_count += 1
            print(f"{name}: {'stale' if options.check else 'writing'} {path}")
        if not options.check:
            write_files(files)
    return 1 if options.check and stale_count else 0


if __name__ == "__main__":
    sys.exit(main())

"""The mustpass lists: which cases a runtime must pass for each profile, from the cases of nonce 0."""

from __future__ import annotations

import json
from pathlib import Path

from mutcache_tools.generate import Files

FOLDER = Path("conformance/mutcache_conformance/mustpass")


def generate() -> Files:
    """One file per profile that has required cases."""
    # Imported here and not before: the requirements that the cases name may have been generated just now.
    from mutcache_conformance.cases import generate as generate_cases
    from mutcache_conformance.mustpass import make_lists

    lists = make_lists(generate_cases())
    return {FOLDER / f"{profile.value}.json": json.dumps(data, indent=1) + "\n" for profile, data in lists.items()}

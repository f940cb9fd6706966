"""The conformance tests of PAGED: page tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["AREA", "test_case"]

#: The cases of this module are those whose id begins with it.
AREA: Final = "paged"


def test_case(conformance_case: Callable[[], None]) -> None:
    """One case against the runtime under test."""
    conformance_case()

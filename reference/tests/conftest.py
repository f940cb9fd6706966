"""What all tests of the reference keep."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from mutcache.leases import LEASES


@pytest.fixture(autouse=True, scope="module")
def no_lease_is_left() -> Iterator[None]:
    """No test may leak a lease. What others left before may end meanwhile."""
    gc.collect()
    before = LEASES.held().keys()
    yield
    gc.collect()
    assert LEASES.held().keys() <= before

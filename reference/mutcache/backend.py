"""What runs updates of caches that are not in the host's memory; a session is given it as ``backend``."""

from __future__ import annotations

from typing import Any, Protocol

from mutcache.ops.dense import Attributes, Names
from mutcache.storage import Array


class Writer(Protocol):
    """Updates one cache."""

    def write(self, values: Array, position: Array) -> None:
        """Validate everything, then write.

        Args:
            values: on the host; of the cache's element type and rank, and of its dimensions but for the updated one.
            position: on the host; INT64, ``[]`` or ``[batch]``.

        Raises:
            RunError: MC-DENSE-003, MC-DENSE-004 or MC-SHAPE-006. Not a byte has been written.
        """


class Backend(Protocol):
    """A device with kernels.

    Attributes:
        device: the address space of its storage, as :class:`mutcache.storage.Storage` names it, for example ``cuda:0``.
    """

    device: str

    def cache_update(self, cache: Any, attributes: Attributes, names: Names) -> Writer:
        """A CacheUpdate of ``cache``, an array in the memory of the device."""

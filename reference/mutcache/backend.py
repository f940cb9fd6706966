"""What runs updates of caches that are not in the host's memory; a session is given it as ``backend``."""

from __future__ import annotations

from typing import Any, Protocol

from mutcache.ops.dense import Attributes, Names
from mutcache.page_memory import PageMemory
from mutcache.storage import Array


class Writer(Protocol):
    """Updates one cache."""

    def write(self, values: Any, position: Any) -> None:
        """Validate everything, then write.

        Args:
            values: on the host or the device; of the cache's element type and rank, and of its dimensions but for the
                updated one.
            position: on the host or the device; INT64, ``[]`` or ``[batch]``.

        Raises:
            RunError: MC-DENSE-003, MC-DENSE-004 or MC-SHAPE-006. Not a byte has been written.
        """


class Backend(Protocol):
    """A device with kernels.

    Attributes:
        device: the address space of its storage, as :class:`mutcache.storage.Storage` names it, for example ``cuda:0``.
        pages: the memory of pages on the device.
    """

    device: str

    @property
    def pages(self) -> PageMemory:
        """What writes and reads pages on the device."""

    def cache_update(self, cache: Any, attributes: Attributes, names: Names) -> Writer:
        """A CacheUpdate of ``cache``, an array in the memory of the device."""

    def adopt(self, array: Any) -> Any:
        """An array of whatever library in the memory of the device, as what runs can use, over the same memory.

        It has ``shape`` and ``dtype`` as NumPy's arrays have them, and ``get()`` for a copy on the host.
        """

    def write(self, target: Any, values: Array) -> None:
        """Copy an array of the host to one of the device that has its shape and element type."""

"""The kernels' runtime on the CPU in a device's place, with faults there; the docstring of each is its idea."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mutcache_conformance.adapters.cupy import CupyAdapter
from mutcache_conformance.adapters.shared_memory import bytes_at


class SoundDevice(CupyAdapter):
    """None: it conforms."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({**options, "device": "host"})
        self.launch: Any = self._accounts.device.launch
        self._accounts.device.launch = self.on_launch  # type: ignore[method-assign]  # of this one object

    def on_launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        """Launch a kernel."""
        self.launch(kernel, grid, table, status)

    def flip(self, byte: int) -> None:
        """Change a byte on the device, by the address of what it is the image of."""
        image = next(one for loan in self._images.loans for one in loan.images if one.mapping.holds(byte, 1))
        at = image.address + byte - image.mapping.start
        bytes_at(at, at + 1)[:] ^= 0xFF

    def lent(self) -> list[tuple[int, int]]:
        """First address on the host, and end, of all that is lent, in the order of lending."""
        return [span for loan in self._images.loans for span in loan.ranges]


class Forgets(SoundDevice):
    """A kernel that writes nothing, and says that all is well."""

    def on_launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        pass


class WritesBehind(SoundDevice):
    """A kernel that writes a byte behind the cache, where nothing was lent."""

    def on_launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        self.launch(kernel, grid, table, status)
        self.flip(self.lent()[-1][1])


class WritesInitializers(SoundDevice):
    """A kernel that writes a byte of what was lent first, which is an initializer where there is one."""

    def on_launch(self, kernel: str, grid: tuple[int, int], table: Any, status: Any) -> None:
        self.launch(kernel, grid, table, status)
        self.flip(self.lent()[0][0])

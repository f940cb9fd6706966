"""Steps: many transfers in one launch, and what their refusal means.

A step is made once and launched as often as wanted: the table is in device memory, and positions, page ids and values
are read there. Launches of one step are asynchronous, in the order of the device's current stream. A transfer that is
out of range writes nothing and raises its flag; flags stay up until :meth:`Step.refused` reads them. A captured graph
that contains a launch defers this reading to the end of its replay: until then nothing says that an update was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mutcache_cupy.device import BLOCK, Device
from mutcache_cupy.records import PAGE, ROWS, Status
from mutcache_cupy.transfers import Transfer

#: Blocks along y: transfers of one launch.
MAX_TRANSFERS = 65535


class Step:
    """Transfers that one launch makes, all at once: none may write what another one reads or writes.

    Args:
        device: where the memory is.
        transfers: at least one and at most MAX_TRANSFERS.
        kernel: the kernel to launch; None: that of the transfers if they have the same, else the one for all.

    Attributes:
        kernel: the kernel that is launched.
        grid: blocks along x and y.

    Raises:
        ValueError: one of them writes bytes that another one writes or reads, or one launch cannot make all of them.
    """

    def __init__(self, device: Device, transfers: Sequence[Transfer], kernel: str | None = None) -> None:
        if not 0 < len(transfers) <= MAX_TRANSFERS:
            raise ValueError(f"a step has 1 to {MAX_TRANSFERS} transfers, got {len(transfers)}")
        _require_disjoint(transfers)
        self._device = device
        self.kernel = kernel or kernel_of(transfers)
        blocks = max(1, *(-(-transfer.items // BLOCK) for transfer in transfers))
        self.grid = min(blocks, max(1, -(-device.blocks // len(transfers)))), len(transfers)
        self._tables = _upload(device, transfers)
        self._status = device.upload(np.zeros(len(transfers), np.int32))

    def launch(self) -> None:
        """Start all transfers."""
        self._device.launch(self.kernel, self.grid, self._tables[0], self._status)

    def refused(self) -> dict[int, Status]:
        """Wait for the launches so far, and take down the flags of the transfers that were refused, by their index."""
        status = self._device.download(self._status).view(np.int32)
        if not status.any():
            return {}
        self._device.fill(self._status, 0)
        return {int(index): Status(int(status[index])) for index in np.flatnonzero(status)}


def kernel_of(transfers: Sequence[Transfer]) -> str:
    """The kernel that makes all of ``transfers``.

    Raises:
        ValueError: there is none.
    """
    names = {transfer.kernel for transfer in transfers}
    if len(names) == 1:
        return next(iter(names))
    for kernel, verb in (("step", "encode_"), ("gather", "decode_")):
        own = {kernel, "dense_update"} if kernel == "step" else {kernel}
        if all(name in own or name.startswith(verb) for name in names):
            return kernel
    raise ValueError(f"no kernel does all of {', '.join(sorted(names))} in one launch")


def _upload(device: Device, transfers: Sequence[Transfer]) -> tuple[Any, ...]:
    """The table of rows on the device, and what must live as long as it: the records of pages."""
    pages = np.zeros(2 * len(transfers), PAGE)
    table = np.zeros(len(transfers), ROWS)
    for index, transfer in enumerate(transfers):
        table[index] = transfer.rows
        for place, page in ((index, transfer.page), (len(transfers) + index, transfer.source)):
            if page is not None:
                pages[place] = page
    on_device = device.upload(pages)
    start = device.address(on_device)
    for index, transfer in enumerate(transfers):
        if transfer.page is not None:
            table[index]["pages"] = start + index * PAGE.itemsize
        if transfer.source is not None:
            table[index]["values"] = start + (len(transfers) + index) * PAGE.itemsize
    return device.upload(table), on_device


#: How bytes are used. What gathers write is interleaved: their ranges meet, their bytes do not.
_READ, _WRITTEN, _INTERLEAVED = "reads", "writes", "gathers to"


def _require_disjoint(transfers: Sequence[Transfer]) -> None:
    """No transfer may write what another one, or itself, reads, nor what another one writes."""
    ranges = []
    for index, transfer in enumerate(transfers):
        writes = _INTERLEAVED if transfer.rows["values_gap"] else _WRITTEN
        uses = ((transfer.written, writes), (transfer.read, _READ))
        ranges += [(start, stop, use, index) for (start, stop), use in uses if start < stop]
    furthest: dict[str, tuple[int, int]] = {}  # of each use: where it ends, and the transfer
    for start, stop, use, index in sorted(ranges):
        for earlier, (end, other) in furthest.items():
            if start < end and (use != earlier or use == _WRITTEN):
                raise ValueError(
                    f"a step happens at once, but transfer {other} {earlier} bytes up to {end:#x}, "
                    f"and transfer {index} {use} them from {start:#x} on"
                )
        furthest[use] = max(furthest.get(use, (0, 0)), (stop, index))

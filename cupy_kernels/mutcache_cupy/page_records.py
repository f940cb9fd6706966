"""The pages of a table as launches find them: by number, in the memory of the device."""

from __future__ import annotations

import math

import numpy as np

from mutcache.paging import PageTable
from mutcache.storage import storage_of
from mutcache_cupy.device import Device
from mutcache_cupy.records import PAGE
from mutcache_cupy.transfers import Transfer, absent_page, encode_rows_of, has_vectors, page_record


class PageRecords:
    """A table of page records on the device, for updates of pages that are named there.

    A step that has such updates is made once: whichever page a launch finds the number of, it writes there, in that
    page's type. The device makes no pages: a launch that finds a number without one is refused (MC-PAGED-004).

    Args:
        device: where the payloads are.
        table: the pages. Runs of a session may make and replace some: call :meth:`refresh` then.
        capacity: how many numbers there are: 0 to ``capacity`` - 1.
        axis: along which rows lie; may be negative.

    Attributes:
        dims: the shape of every page.
        axis: non-negative.
        capacity: as given.

    Raises:
        BindError: see :meth:`refresh`.
        ValueError: likewise; or nothing says what shape a page has, or it has no such axis.
    """

    def __init__(self, device: Device, table: PageTable, capacity: int, axis: int = -2) -> None:
        dims = table.page_dims
        if dims is None or None in dims:
            raise ValueError(f"{table!r} has no page, and nothing says what shape a page has")
        self.dims = tuple(size for size in dims if size is not None)
        if not -len(dims) <= axis < len(dims):
            raise ValueError(f"axis {axis} is out of range for pages of rank {len(dims)}")
        if capacity < 0:
            raise ValueError(f"a capacity of {capacity} is negative")
        self.axis = axis % len(dims)
        self.capacity = capacity
        self._row = math.prod(self.dims[self.axis + 1 :])
        self._device = device
        self._table = table
        self._array = device.empty(max(1, capacity) * PAGE.itemsize)
        self.refresh()

    def refresh(self) -> None:
        """Enter the pages as they are now, in the order of launches.

        Raises:
            BindError: a page is none that a run could write to (MC-PAGED-006, 007, 011 or 014, MC-BIND-002 or 007).
            ValueError: a page has a number beyond the capacity, is not on the device, or has a type without vectors.
        """
        self._table.require_sound(is_written=True)
        records = np.full(max(1, self.capacity), absent_page(), PAGE)
        for number, page in self._table.items():
            declaration = self._table.declaration(page.quantized_type)
            if number >= self.capacity:
                raise ValueError(f"page {number} of {self._table!r}: the records have a capacity of {self.capacity}")
            if page.dims != self.dims:
                raise ValueError(
                    f"page {number} of {self._table!r} has dims {page.dims}, the records are of {self.dims}"
                )
            if (place := storage_of(page.payload).device) != f"cuda:{self._device.id}":
                raise ValueError(f"page {number} of {self._table!r} is on {place}, the records on {self._device.name}")
            address = self._device.address(page.payload)
            if not has_vectors(declaration, self._row, 0, address):
                raise ValueError(f"page {number} of {self._table!r} at {address:#x} has no vectors: {declaration}")
            records[number] = page_record(declaration, self.dims, address, is_vector=True)
        self._device.write(self._array, records)

    def encode_rows(self, *, page_id: int, values: int, positions: int, length: int) -> Transfer:
        """An update of whichever page is named when it is launched; see :func:`.transfers.encode_rows_of`.

        Args:
            page_id: address of the page's number.
            values: address of the values, aligned to 16 bytes.
            positions: address of the first row.
            length: rows of values.

        Raises:
            ValueError: the values, or the rows, are no vectors.
        """
        elem_type, row = self._table.elem_type, self._row
        # Any type that the pages may have: which one a page has is read when the step is launched.
        declaration = next(
            (
                known
                for known in self._table.declarations
                if known is not None and known.data_type == elem_type and has_vectors(known, row, 0, 0)
            ),
            None,
        )
        if declaration is None:
            raise ValueError(f"no page of {self._table!r} can have vectors")
        return encode_rows_of(
            declaration,
            self.dims,
            self.axis,
            pages=self._device.address(self._array),
            n_pages=self.capacity,
            page_id=page_id,
            values=values,
            positions=positions,
            length=length,
        )

"""A session with its caches on a device, against one on the host: every byte, every output and every refusal.

The model updates a dense cache and a page of any type, and gathers pages. What is fed is on the device or on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import numpy as np

from mutcache.errors import RunError
from mutcache.executor import Binding, Session
from mutcache.model import DOMAIN
from mutcache.paging import PageTable
from mutcache.proto import IR_VERSION
from mutcache.proto.onnx_ml import ModelProto, TensorProto, ValueAliasProto, ValueInfoProto
from mutcache.storage import to_host
from mutcache_cupy.backend import KernelBackend
from mutcache_cupy.device import Array, Device

_HALF: Final = TensorProto.FLOAT16
#: Heads, rows and head size of the cache and of each page.
_HEADS, _ROWS, _SIZE = 2, 16, 64
_TURNS: Final = 60


def model() -> ModelProto:
    """The model; its pages are as they are, FP8, INT8 or INT4."""
    made = ModelProto(ir_version=IR_VERSION)
    made.opset_import.add(domain="", version=24)
    made.opset_import.add(domain=DOMAIN, version=1)
    made.quantizations.add(data_type=_HALF).identity.SetInParent()
    made.quantizations.add(data_type=_HALF).cast.storage_type = TensorProto.FLOAT8E4M3FN
    for storage, bits in ((TensorProto.INT8, 8), (TensorProto.INT4, 4)):
        packed = made.quantizations.add(data_type=_HALF).packed_linear
        packed.storage_type, packed.bits, packed.symmetric = storage, bits, True
        packed.block_size, packed.axis, packed.scale_type = 32, 2, _HALF
    graph = made.graph
    graph.name = "session"
    pages = ("pages", "page_id", "values", "position", "quantized_type")
    for kind, inputs, output in (
        ("CacheUpdate", ("cache", "values", "position"), "updated"),
        ("PagedCacheUpdate", pages, "pages_updated"),
        ("PagedCacheGather", ("pages_updated", "ids"), "gathered"),
    ):
        node = graph.node.add(op_type=kind, domain=DOMAIN, input=inputs, output=[output])
        if kind != "PagedCacheGather":
            node.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
    _tensor(graph.input.add(name="cache"), _HALF, [_HEADS, _ROWS, _SIZE])
    _tensor(graph.input.add(name="values"), _HALF, [_HEADS, "rows", _SIZE])
    for name in ("position", "page_id", "quantized_type"):
        _tensor(graph.input.add(name=name), TensorProto.INT64, [])
    _tensor(graph.input.add(name="ids"), TensorProto.INT64, ["count"])
    _tensor(graph.output.add(name="updated", alias_of="cache"), _HALF, [_HEADS, _ROWS, _SIZE])
    _tensor(graph.output.add(name="gathered"), _HALF, [_HEADS, "all", _SIZE])
    for container in (graph.input.add(name="pages"), graph.output.add(name="pages_updated", alias_of="pages")):
        element = container.type.sequence_type.elem_type.quantized_tensor_type
        element.elem_type = _HALF
        for size in (_HEADS, _ROWS, _SIZE):
            element.shape.dim.add(dim_value=size)
    graph.input[0].access = graph.input[-1].access = ValueInfoProto.READ_WRITE
    return made


def _tensor(value: ValueInfoProto, dtype: int, dims: Sequence[int | str]) -> None:
    value.type.tensor_type.elem_type = dtype
    value.type.tensor_type.shape.SetInParent()
    for dim in dims:
        added = value.type.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            added.dim_value = dim
        else:
            added.dim_param = dim


def check_session(device: Device, *, turns: int = _TURNS) -> Iterator[dict[str, Any]]:
    """Run both sessions side by side, on a stream of their own where the device has streams.

    Yields:
        ``checked``: how many runs; ``refused``: how many of them were refused by both; ``wrong``: those that differ;
        ``is_right``.
    """
    rng, made = np.random.default_rng(0), model()
    found: dict[str, Any] = {"checked": 0, "refused": 0, "wrong": [], "is_right": True}
    with _stream(device):
        empty = np.zeros((_HEADS, _ROWS, _SIZE), np.float16)
        caches = empty, _placed(device, empty)
        tables = tuple(PageTable([], model=made, value="pages") for _ in caches)
        backends = None, KernelBackend(device)
        sessions = [Session(made, backend=backend) for backend in backends]
        bindings = [
            one.bind({"cache": cache, "pages": table})
            for one, cache, table in zip(sessions, caches, tables, strict=True)
        ]
        for turn in range(turns):
            feeds = _feeds(rng, len(tables[0]))
            placed = {name: _placed(device, array) if turn % 2 else array for name, array in feeds.items()}
            on_host, on_device = (_run(*both) for both in zip(bindings, (feeds, placed), strict=True))
            is_right = on_host == on_device and to_host(caches[1]).tobytes() == caches[0].tobytes()
            is_right &= _contents(tables[0]) == _contents(tables[1])
            found["checked"] += 1
            found["refused"] += "refused" in on_host
            if not is_right:
                found["wrong"].append(f"run {turn}: {on_host['told']}, on the device {on_device['told']}")
                found["is_right"] = False
            yield found
        for one in sessions:
            one.close()


def _feeds(rng: np.random.Generator, n_pages: int) -> dict[str, Array]:
    """A page that is there, or the next; now and then a page or a position that is refused."""
    rows, page_id = int(rng.integers(1, 4)), int(rng.integers(0, min(n_pages, 3) + 1))
    position = int(rng.integers(0, _ROWS - rows + 1))
    match rng.integers(12):
        case 0:
            page_id = n_pages + 1
        case 1:
            position = _ROWS - rows + 1
        case 2:
            position = -1
    return {
        "values": rng.standard_normal((_HEADS, rows, _SIZE)).astype(np.float16),
        "position": np.array(position, np.int64),
        "page_id": np.array(page_id, np.int64),
        "quantized_type": np.array(rng.integers(0, 4), np.int64),
        "ids": np.arange(n_pages, dtype=np.int64)[::-1].copy(),
    }


def _run(binding: Binding, feeds: dict[str, Any]) -> dict[str, Any]:
    """What can be compared of a run."""
    try:
        gathered = binding.run(feeds)["gathered"]
    except RunError as error:
        return {"refused": error.requirement, "told": error.message}
    return {"gathered": to_host(gathered).tobytes(), "told": "it ran"}


def _contents(table: PageTable) -> list[tuple[int, int, bytes]]:
    return [(page_id, page.quantized_type, to_host(page.payload).tobytes()) for page_id, page in table.items()]


def _placed(device: Device, array: Array) -> Any:
    """A copy of an array on the device, as users have it: with CuPy, an array of CuPy."""
    return device.view(device.upload(array), 0, array.dtype, array.shape)


def _stream(device: Device) -> AbstractContextManager[Any]:
    package = getattr(device, "cupy", None)
    return nullcontext() if package is None else package.cuda.Stream(non_blocking=True)

"""A plan as the document that ``mutcache plan --format json`` prints; ``schemas/plan.json`` describes it."""

from __future__ import annotations

from mutcache.memory_plan import MemoryPlan, PlannedStorage, ScopeMemory
from mutcache.model import TensorType
from mutcache.page_plan import PlannedTable
from mutcache_tools.words import type_words


def plan_document(path: str, memory: MemoryPlan) -> dict[str, object]:
    """The document of the plan of the model at ``path``.

    Graphs stand in a list, the main graph first, and steps name their bodies by position in it: a function may be
    called from many places.
    """
    return {
        "model": path,
        "dims": dict(memory.dims),
        "caches": [_storage(cache) for cache in memory.caches],
        "inputs": [_storage(value) for value in memory.inputs],
        "page_tables": [_table(table) for table in memory.tables],
        "cache_bytes": memory.cache_bytes,
        "input_bytes": memory.input_bytes,
        "new_page_bytes": memory.new_page_bytes,
        "initializer_bytes": memory.initializer_bytes,
        "in_place": {"peak_bytes": memory.peak_bytes, "graphs": _graphs(memory.in_place)},
        "copying": {"peak_bytes": memory.copying_peak_bytes, "graphs": _graphs(memory.copying)},
        "saved_bytes": memory.saved_bytes,
        "unknown": list(memory.unknown),
    }


def _graphs(main: ScopeMemory) -> list[dict[str, object]]:
    scopes = list(main.walk())
    number = {scope: position for position, scope in enumerate(scopes)}
    return [
        {
            "graph": scope.path,
            "allocated_bytes": scope.peak_bytes,
            "peak_step": scope.peak_step,
            "steps": [
                {
                    "node": step.node.label,
                    "live_bytes": step.bytes,
                    "bodies": {name: number[body] for name, body in step.bodies.items()},
                }
                for step in scope.steps
            ],
            "values": [_storage(storage) for storage in scope.storages],
            "buffers": [{"bytes": buffer.bytes, "values": list(buffer.values)} for buffer in scope.buffers],
        }
        for scope in scopes
    ]


def _table(table: PlannedTable) -> dict[str, object]:
    return {
        "name": table.name,
        "names": list(table.names),
        "page": type_words(table.page),
        "page_bytes": {str(index): size for index, size in table.page_bytes.items()},
        "mutable": table.is_mutable,
        "new_pages": table.new_pages,
        "new_bytes": table.new_bytes,
    }


def _storage(storage: PlannedStorage) -> dict[str, object]:
    known = storage.type
    return {
        "name": storage.name,
        "names": list(storage.names),
        "role": storage.role.value,
        "type": type_words(known) or None,
        "shape": list(known.dims) if isinstance(known, TensorType) and known.dims is not None else None,
        "bytes": storage.bytes,
        "first": storage.first,
        "last": storage.last,
    }

"""The cases, made from a nonce."""

from __future__ import annotations

import functools
from typing import Final

from mutcache_conformance.case import Case
from mutcache_conformance.cases import (
    access,
    access_scopes,
    alias,
    alias_order,
    alias_scopes,
    bind,
    bind_lease,
    bind_output,
    bind_overlap,
    concurrency,
    dense,
    dense_axes,
    dense_large,
    dense_types,
    flow_branch,
    flow_function,
    flow_loop,
    flow_run,
    flow_scan,
    mem,
    mem_flow,
    mem_pages,
    paged,
    paged_atomic,
    paged_flow,
    paged_operands,
    paged_tables,
    paged_types,
    paged_wrong,
    plan,
    proto,
    quant,
    quant_declarations,
    shape,
    shape_scopes,
)
from mutcache_conformance.cases.draw import PUBLIC

#: The modules of each area; the areas are in the order of the specification's chapters.
AREAS: Final = {
    "proto": (proto,),
    "alias": (alias, alias_order, alias_scopes),
    "access": (access, access_scopes),
    "shape": (shape, shape_scopes),
    "flow": (flow_branch, flow_loop, flow_scan, flow_function, flow_run),
    "plan": (plan,),
    "bind": (bind, bind_overlap, bind_lease, bind_output, concurrency),
    "dense": (dense, dense_types, dense_axes, dense_large),
    "paged": (paged, paged_types, paged_tables, paged_operands, paged_atomic, paged_flow, paged_wrong),
    "quant": (quant, quant_declarations),
    "mem": (mem, mem_flow, mem_pages),
}


@functools.cache
def generate(nonce: int = PUBLIC) -> tuple[Case, ...]:
    """Every case, always in the same order and with the same bytes for the same ``nonce``.

    The nonce chooses names, positions and contents; ids, requirements and outcomes do not depend on it.
    """
    return tuple(case for area in AREAS.values() for module in area for case in module.cases(nonce))

"""A few hand-made cases of the harness's own tests, that need neither the corpus nor the reference."""

from __future__ import annotations

import numpy as np

from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.proto import IR_VERSION, serialize
from mutcache.proto.onnx_ml import ModelProto, TensorProto, ValueAliasProto, ValueInfoProto
from mutcache.requirements import Phase, Profile, Req
from mutcache_conformance.case import ACCEPT, BIND, RUN, Bind, Case, Expect, Load, Release, Run, Step, Storage, Unload

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(*, mutable: bool = True) -> bytes:
    """One update of a cache of shape [2, 8, 4]."""
    made = ModelProto(ir_version=IR_VERSION)
    made.opset_import.add(domain="", version=23)
    made.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    graph = made.graph
    graph.name = "toy"
    for name, dtype, dims in (("cache", FLOAT, (2, 8, 4)), ("values", FLOAT, (2, 3, 4)), ("position", INT64, ())):
        _declare(graph.input.add(name=name), dtype, dims)
    _declare(graph.output.add(name="updated", alias_of="cache"), FLOAT, (2, 8, 4))
    if mutable:
        graph.input[0].access = ValueInfoProto.READ_WRITE
    node = graph.node.add(op_type="CacheUpdate", domain=DOMAIN, input=["cache", "values", "position"])
    node.output.append("updated")
    node.output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
    return serialize(made)


def _declare(value: ValueInfoProto, dtype: int, dims: tuple[int, ...]) -> None:
    value.type.tensor_type.elem_type = dtype
    value.type.tensor_type.shape.SetInParent()
    for size in dims:
        value.type.tensor_type.shape.dim.add(dim_value=size)


def storages(position: int, *, writable: bool = True) -> tuple[Storage, ...]:
    """A cache of 0, 1, 2, ..., values of 100, 101, ... and a position."""
    cache = np.arange(64, dtype=np.float32)
    values = np.arange(100, 124, dtype=np.float32)
    return (
        Storage("cache", FLOAT, (2, 8, 4), cache.tobytes(), writable=writable),
        Storage("values", FLOAT, (2, 3, 4), values.tobytes(), writable=False),
        Storage("position", INT64, (), np.int64(position).tobytes(), writable=False),
    )


FEEDS = {"values": "values", "position": "position"}
LOAD_STEP, BIND_STEP = Load("session"), Bind("session", "binding", {"cache": "cache"})


def run(expect: Expect = ACCEPT) -> Run:
    """A run of the binding."""
    return Run("session", FEEDS, "binding", expect)


def case(
    case_id: str,
    requirement: Req,
    *script: Step,
    position: int = 2,
    writable: bool = True,
    twin: str = "",
    needs: frozenset[str] = frozenset(),
    mutable: bool = True,
    required: bool = True,
) -> Case:
    """A case on the toy model."""
    return Case(
        id=case_id,
        requirements=(requirement,),
        profile=Profile.DENSE,
        title="A toy.",
        models={"model": model(mutable=mutable)},
        storages=storages(position, writable=writable),
        script=script,
        twin=twin,
        needs=needs,
        required=required,
    )


VALID = case(
    "toy-001/update",
    Req.MC_DENSE_001,
    LOAD_STEP,
    BIND_STEP,
    run(),
    run(),
    Release("binding"),
    Unload("session"),
)
OVERFLOW = case(
    "toy-002/overflow",
    Req.MC_DENSE_003,
    LOAD_STEP,
    BIND_STEP,
    run(Expect(RUN)),
    Release("binding"),
    Unload("session"),
    position=6,
    twin=VALID.id,
)
READ_ONLY = case(
    "toy-003/read-only",
    Req.MC_BIND_002,
    LOAD_STEP,
    Bind("session", "binding", {"cache": "cache"}, expect=Expect(BIND)),
    run(),
    Unload("session"),
    writable=False,
    twin=VALID.id,
)
#: May be refused when it is bound, at the latest when it runs.
READ_ONLY_LATE = case(
    "toy-004/read-only-late",
    Req.MC_BIND_002,
    LOAD_STEP,
    BIND_STEP,
    run(Expect(frozenset({Phase.BIND, Phase.RUN}))),
    writable=False,
    twin=VALID.id,
)
IMMUTABLE = case(
    "toy-005/immutable",
    Req.MC_ALIAS_010,
    Load("session", expect=Expect(frozenset({Phase.CHECK}))),
    BIND_STEP,
    mutable=False,
    twin=VALID.id,
)
OPTIONAL = case(
    "toy-006/optional",
    Req.MC_DENSE_007,
    LOAD_STEP,
    needs=frozenset({"dtype:FLOAT8E5M2"}),
    required=False,
)
CASES = {one.id: one for one in (VALID, OVERFLOW, READ_ONLY, READ_ONLY_LATE, IMMUTABLE, OPTIONAL)}

"""``check_model`` against stock onnx's own checker, which is a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onnx import checker

from mutcache.check import check_model
from mutcache.decode import decode
from mutcache.lower import lower
from mutcache.proto import to_onnx
from mutcache.proto.onnx_ml import ModelProto
from mutcache_tools.bench import Goal, Peer, Row, Unit
from mutcache_tools.bench.decoder import build
from mutcache_tools.bench.timing import compare

#: About 10,000 and 100,000 nodes.
SMALL_LAYERS: Final = 50
LARGE_LAYERS: Final = 503


def measure() -> Iterator[Row]:
    """The check of a large decoder, and how its time grows with the model."""
    small, large = build(SMALL_LAYERS), build(LARGE_LAYERS)
    small_stripped, large_stripped = to_onnx(lower(small)), to_onnx(lower(large))
    ours, theirs, ours_small, theirs_small = compare(
        [
            lambda: check_model(large),
            lambda: checker.check_model(large_stripped, full_check=True),
            lambda: check_model(small),
            lambda: checker.check_model(small_stripped, full_check=True),
        ],
        rounds=7,
    )
    nodes, small_nodes = len(large.graph.node), len(small.graph.node)
    yield Row(
        f"check_model, {nodes:,} nodes, {_annotations(large):,} alias annotations",
        Unit.SECONDS,
        ours,
        Peer("onnx.checker, full check, stripped", theirs),
        Goal(2.0),
        "the base check by onnx.checker is included",
    )
    # Time grows faster than work here: the small model fits the caches of the processor and the large one does not.
    # The C++ checker pays the same, so its growth is what ours is held against; that our own work is linear in what
    # is executed, a test shows (test_check_grows_linearly).
    yield Row(
        f"growth of check_model with {nodes / small_nodes:.1f} times the nodes",
        Unit.TIMES,
        ours / ours_small,
        Peer("growth of onnx.checker, full check, stripped", theirs / theirs_small),
        Goal(1.1),
        "linear in work; time also grows with what the processor's caches no longer hold",
    )


def _annotations(model: ModelProto) -> int:
    """Uses of ``output_alias`` and ``alias_of``; the caches' ``access`` is not counted."""
    graph = decode(model).graph
    ports = sum(len(graph.nodes[index].aliases) for index in graph.marked)
    return ports + sum(bool(value.alias_of) for value in graph.annotated)

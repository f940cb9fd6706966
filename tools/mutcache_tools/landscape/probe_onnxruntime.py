"""Probes of ONNX Runtime with models as they are: does it refuse what it does not understand?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnx import parser

from mutcache.proto import BASE_IR_VERSION, IR_VERSION, from_onnx, serialize
from mutcache.proto.onnx_ml import ValueAliasProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache_tools.landscape.probing import Observation, play


def scene_load(ir_version: str) -> dict[str, Any]:
    """Load a model that promises an alias of one Identity."""
    import onnxruntime

    header = f'<ir_version: {ir_version}, opset_import: ["": 24]>'
    text = f"{header} g (float[8] cache) => (float[8] same) {{ same = Identity(cache) }}"
    model = from_onnx(parser.parse_model(text))
    model.graph.input[0].access = ValueInfoProto.READ_WRITE
    model.graph.output[0].alias_of = "cache"
    model.graph.node[0].output_alias.add(output_index=0, input_index=0, kind=ValueAliasProto.MUST_ALIAS)
    try:
        onnxruntime.InferenceSession(serialize(model), providers=["CPUExecutionProvider"])
    except Exception as error:
        return {"refused": " ".join(str(error).split())}
    return {"refused": ""}


def observations() -> Iterator[Observation]:
    """Play the scenes and say what they show."""
    for version in (IR_VERSION, BASE_IR_VERSION):
        refused = play(__name__, "load", str(version))["refused"]
        if refused:
            status, seen = "unsupported" if version == IR_VERSION else "pass", f"Refused: {refused}"
        else:
            status = "pass" if version == IR_VERSION else "fail"
            seen = "It was loaded, without a word."
        yield Observation(
            f"ir-version-{version}",
            (Req.MC_PROTO_002,),
            status,
            f"Loaded a model of IR version {version} whose Identity promises an alias.",
            seen,
        )

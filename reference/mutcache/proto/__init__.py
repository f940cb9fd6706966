"""The proto delta: message classes, and reading and writing models that carry it."""

from mutcache.proto.delta import BASE_IR_VERSION, IR_VERSION
from mutcache.proto.io import from_onnx, load, load_external_data, parse, save, serialize, to_onnx

__all__ = [
    "BASE_IR_VERSION",
    "IR_VERSION",
    "from_onnx",
    "load",
    "load_external_data",
    "parse",
    "save",
    "serialize",
    "to_onnx",
]

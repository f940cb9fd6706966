"""Message classes of the patched ``onnx-data.proto``; their types are in ``onnx_data.pyi``."""

from mutcache.proto.delta import file_classes

globals().update(file_classes("onnx/onnx-data.proto"))

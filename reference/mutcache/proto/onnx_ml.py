"""Message classes of the patched ``onnx-ml.proto``; their types are in ``onnx_ml.pyi``."""

from mutcache.proto.delta import file_classes

globals().update(file_classes("onnx/onnx-ml.proto"))

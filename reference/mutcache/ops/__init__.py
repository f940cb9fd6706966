"""Kernels: the in-place operators of this specification, and the standard operators of onnx.reference."""

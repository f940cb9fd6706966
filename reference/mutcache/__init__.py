"""Specification toolkit for ONNX mutable execution caches."""

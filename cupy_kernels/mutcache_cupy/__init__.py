"""CUDA kernels that write and quantize cache rows in place."""

"""Patched ``.proto`` files and type stubs, from ``proto/onnx.patch`` and the installed onnx wheel.

The wheel ships the ``.in.proto`` sources and the script that turns them into ``.proto`` files;
the patch is the hand-written source of everything here.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import patch_ng
from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from onnx import gen_proto

from mutcache_tools.generate import ROOT

PATCH = Path("proto/onnx.patch")
SOURCES = ("onnx.in.proto", "onnx-data.in.proto")
NOTICE = "// Generated from the installed onnx wheel and proto/onnx.patch by mutcache_tools.generate; do not edit.\n\n"
STUB_NOTICE = "# Generated from proto/onnx/*.proto by mutcache_tools.generate; do not edit.\n"


def patched_sources(patch: Path = ROOT / PATCH) -> dict[str, str]:
    """The wheel's ``.in.proto`` files with the patch applied, by file name.

    Raises ValueError when a hunk does not apply: the installed onnx moved under the patch.
    """
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "onnx"
        base.mkdir()
        for name in SOURCES:
            shutil.copy(str(files("onnx") / name), base / name)
        patch_set = patch_ng.fromfile(str(patch))
        if not patch_set or not patch_set.apply(strip=1, root=folder, fuzz=False):
            raise ValueError(f"{patch} does not apply to the .in.proto files of the installed onnx")
        return {name: (base / name).read_text(encoding="utf-8") for name in SOURCES}


def patched_protos() -> dict[str, str]:
    """The patched ``.proto`` files (the ML variant, which the Python package is built from)."""
    protos = {}
    for name, source in patched_sources().items():
        target = "onnx-ml.proto" if name == "onnx.in.proto" else name.replace(".in.proto", ".proto")
        protos[target] = gen_proto.translate(source, proto=2, onnx_ml=True, package_name="onnx") + "\n"
    return protos


def _run_protoc(protos: dict[str, str], folder: Path, *options: str) -> None:
    base = folder / "onnx"
    base.mkdir(exist_ok=True)
    for name, text in protos.items():
        (base / name).write_text(text, encoding="utf-8")
    status = protoc.main(["protoc", f"-I{folder}", *options, *(str(base / name) for name in protos)])
    if status != 0:
        raise ValueError(f"protoc failed with exit status {status}")


def compiled_descriptors(protos: dict[str, str]) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """What protoc makes of the files, by the name they import each other with."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "descriptors.bin"
        _run_protoc(protos, Path(folder), f"--descriptor_set_out={output}")
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())
    return {file.name: file for file in descriptors.file}


def _stubs(protos: dict[str, str]) -> dict[str, str]:
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    with tempfile.TemporaryDirectory() as folder:
        _run_protoc(
            protos,
            Path(folder),
            f"--plugin=protoc-gen-mypy={plugin}",
            f"--mypy_out=relax_strict_optional_primitives:{folder}",
        )
        stubs = {}
        for path in sorted(Path(folder).rglob("*.pyi")):
            module = path.stem.removesuffix("_pb2")
            text = re.sub(r"\bonnx\.(onnx_\w+)_pb2\b", r"mutcache.proto.\1", path.read_text(encoding="utf-8"))
            text = re.sub(r"\bfrom onnx import (onnx_\w+?)_pb2 as", r"from mutcache.proto import \1 as", text)
            stubs[f"{module}.pyi"] = STUB_NOTICE + text
    return stubs


def generate() -> dict[Path, str]:
    """All generated proto files: patched sources and ``.proto`` files under ``proto/onnx``, and the stubs."""
    protos = patched_protos()
    generated = {Path("proto/onnx") / name: NOTICE + text for name, text in {**patched_sources(), **protos}.items()}
    generated.update({Path("reference/mutcache/proto") / name: text for name, text in _stubs(protos).items()})
    return generated

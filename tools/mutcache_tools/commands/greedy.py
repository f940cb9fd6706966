"""``mutcache greedy MODEL --prompt TOKEN ...``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mutcache_tools.commands import Command
from mutcache_tools.commands.run import named_size, unique
from mutcache_tools.output import Output

if TYPE_CHECKING:
    from mutcache.proto.onnx_ml import ModelProto
    from mutcache_tools.greedy import Evaluator


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a decoder, converted or as it was exported")
    parser.add_argument(
        "--prompt", type=_token, nargs="+", required=True, metavar="TOKEN", help="numbers of the first tokens"
    )
    parser.add_argument("--tokens", type=_count, default=12, metavar="N", help="tokens to generate (default: 12)")
    parser.add_argument(
        "--position-name",
        default="position",
        metavar="NAME",
        help="the converted decoder's input for the valid length (default: position)",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=named_size,
        metavar="NAME=N",
        help="size of a symbol in a cache's shape",
    )


def _token(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 63:
        raise argparse.ArgumentTypeError(f"a token is a number from 0 to 2**63 - 1, got {text}")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


_count.__name__ = "count"  # argparse names the type so: "invalid count value"


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.decode import decode
    from mutcache.proto import load
    from mutcache_tools.greedy import GrowingDecoder, MutableDecoder, greedy_tokens

    model = load(options.model)
    dims = unique(options.dim, "--dim")
    caches: list[dict[str, object]] = []
    if any(value.is_mutable for value in decode(model).graph.inputs):
        runtime = "mutcache"
        with MutableDecoder(model, dims=dims, position_name=options.position_name) as converted:
            tokens = greedy_tokens(converted, options.prompt, options.tokens)
            caches = [
                {"name": name, "nbytes": cache.nbytes, "in_place": converted.addresses[name] == {cache.ctypes.data}}
                for name, cache in converted.caches.items()
            ]
    else:
        runtime, evaluate = _evaluator(options.model, model)
        tokens = greedy_tokens(GrowingDecoder(model, evaluate, dims=dims), options.prompt, options.tokens)

    def text() -> None:
        output.line(" ".join(map(str, tokens)))
        in_place = sum(bool(cache["in_place"]) for cache in caches)
        where = f"{in_place} of {len(caches)} caches updated in place" if caches else "caches copied in every step"
        output.line((f"({runtime}; {where})", "dim"))

    output.show({"model": options.model, "runtime": runtime, "tokens": tokens, "caches": caches}, text)
    return 0


def _evaluator(path: str, model: ModelProto) -> tuple[str, Evaluator]:
    """ONNX Runtime where it is installed, else the slow evaluator of the onnx package."""
    from mutcache_tools.greedy import onnx_reference_evaluator, onnxruntime_evaluator

    try:
        return "onnxruntime", onnxruntime_evaluator(path)
    except ImportError:
        return "onnx.reference", onnx_reference_evaluator(model)


COMMAND = Command(
    "greedy",
    "generate tokens with a decoder, before or after its conversion",
    "Generate tokens greedily, from an empty cache: with a converted decoder on the reference runtime, with the "
    "original on ONNX Runtime where that is installed. Both must print the same tokens.",
    _add_arguments,
    _run,
)

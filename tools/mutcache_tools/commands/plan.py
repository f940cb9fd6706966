"""``mutcache plan MODEL --dim NAME=N``."""

from __future__ import annotations

import argparse

from mutcache_tools.commands import Command
from mutcache_tools.commands.run import named_size, schedule, unique
from mutcache_tools.output import Output


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=named_size,
        metavar="NAME=N",
        help="size of a symbolic dimension, or the value of an integer input on which sizes depend (position=7)",
    )
    parser.add_argument(
        "--schedule",
        type=schedule,
        default="node-order",
        metavar="ORDER",
        help="order in which nodes run: node-order, or random:SEED (default: node-order)",
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the plan: memory over the steps, and how long values live")
    parser.add_argument("--html", metavar="FILE", help="write the drawing with tables of all values, as one page")
    parser.add_argument("--all", action="store_true", help="show long lists in full")


def _run(options: argparse.Namespace, output: Output) -> int:
    from mutcache.check import check_model
    from mutcache.decode import decode
    from mutcache.plan import plan
    from mutcache_tools.model_files import read_model, write_text
    from mutcache_tools.plan_html import plan_html
    from mutcache_tools.plan_json import plan_document
    from mutcache_tools.plan_svg import plan_svg
    from mutcache_tools.plan_text import PlanText

    model = decode(read_model(options.model))
    check_model(model)
    made = plan(model, unique(options.dim, "--dim"), schedule=options.schedule)
    assert made.memory is not None  # sizes were given, if none at all
    if options.svg is not None:
        write_text(options.svg, plan_svg(made, options.model))
    if options.html is not None:
        write_text(options.html, plan_html(made, options.model))
    output.show(
        plan_document(options.model, made.memory),
        lambda: output.render(PlanText(made, options.model, show_all=options.all)),
    )
    return 0


COMMAND = Command(
    "plan",
    "show what memory a run needs, and what updates in place save",
    "Plan the memory of a run for given sizes: lifetimes, buffers and the peak, with updates in place and, beside it, "
    "with updates that copy their caches.",
    _add_arguments,
    _run,
)

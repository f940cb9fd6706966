"""MC-QUANT: the declarations that pages may have are those of version 1."""

from __future__ import annotations

from collections.abc import Iterator

from mutcache.diagnostics import Diagnostic
from mutcache.model import page_type
from mutcache.quantization import problems
from mutcache.requirements import Req
from mutcache.rules.registry import Context, finding, rule


@rule(Req.MC_QUANT_006)
def mc_quant_006_declaration(context: Context) -> Iterator[Diagnostic]:
    """Every declaration that a page may have is one that version 1 accepts."""
    declarations = context.model.proto.quantizations
    if not declarations:
        return
    usable = _usable(context)
    for index, declaration in enumerate(declarations):
        if (usable is None or index in usable) and (reasons := problems(declaration)):
            yield finding(
                Req.MC_QUANT_006,
                f"quantizations[{index}] ({declaration.WhichOneof('kind') or 'no kind'}) is not accepted: "
                + "; ".join(reasons),
                context.graph,
                hint="version 1 accepts packed_linear, linear with scale_float, cast to FLOAT8E4M3FN, and identity; "
                "a declaration for something else than pages belongs into no allowed_quantized_type",
            )


def _usable(context: Context) -> set[int] | None:
    """The declarations that some container allows its pages; None for all, since one container allows any."""
    allowed: set[int] = set()
    for graph in context.graphs:
        for value in graph.declared():
            page = page_type(value.type)
            if page is not None:
                if not page.allowed:
                    return None
                allowed.update(page.allowed)
    return allowed

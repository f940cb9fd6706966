"""The rules of the checker, one module per area, one function per requirement."""

# The order of these imports is the order in which findings are reported.
from mutcache.rules import proto, ports, names, versions, access, containers, flow, shape, quant, paged  # noqa: F401, I001
from mutcache.rules.registry import RULES, Context, Rule

__all__ = ["RULES", "Context", "Rule"]

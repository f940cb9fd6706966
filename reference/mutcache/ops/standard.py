"""Kernels of all other operators: those of onnx.reference, one node at a time.

They return new arrays or views of their inputs. An input that is read-only they cannot write to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx.reference import ReferenceEvaluator

from mutcache.errors import PlanError
from mutcache.model import STANDARD_DOMAINS, Model, Node
from mutcache.proto.onnx_ml import GraphProto, ValueInfoProto
from mutcache.scopes import captures

#: Computes the outputs of one node from the values of its graph by name; the absent value ``""`` is None.
Kernel = Callable[[Mapping[str, Any]], Sequence[Any]]


class StandardKernels:
    """Loads the kernels of one model's nodes.

    Raises:
        PlanError: a local function has a node without a kernel.
    """

    def __init__(self, model: Model) -> None:
        self._opsets = {_spell(domain): version for domain, version in model.opsets.items()}
        # Operators that are defined by a function body get the one for the types of their inputs.
        graph = model.proto.graph
        self._types: Mapping[str, ValueInfoProto] = {
            value.name: value for values in (graph.value_info, graph.output, graph.input) for value in values
        }
        self._functions: list[ReferenceEvaluator] = []
        for function in model.proto.functions:
            try:
                stock = onnx.FunctionProto.FromString(function.SerializeToString())
                _respell(stock.node)
                for opset in stock.opset_import:
                    opset.domain = _spell(opset.domain)
                self._functions.append(ReferenceEvaluator(stock, functions=list(self._functions)))
            except Exception as error:
                raise _no_kernel(f"function {function.domain}::{function.name}", error) from error

    def load(self, node: Node) -> Kernel:
        """The kernel of ``node``.

        Raises:
            PlanError: onnx.reference has none.
        """
        types = (self._types[name] for name in node.inputs if name in self._types)
        graph = GraphProto(node=[node.proto], value_info=types)
        try:
            # An evaluator of this one node: it finds the kernel as it would for a whole graph.
            stock = onnx.GraphProto.FromString(graph.SerializeToString())
            _respell(stock.node)
            evaluator = ReferenceEvaluator(stock, opsets=self._opsets, functions=list(self._functions))
        except Exception as error:
            raise _no_kernel(node.label, error) from error
        kernel, names = evaluator.rt_nodes_[0], node.inputs
        if kernel.need_context():
            captured = tuple(captures(node))
            return lambda values: kernel.run(
                *[values[name] for name in names], context={name: values[name] for name in captured}
            )
        return lambda values: kernel.run(*[values[name] for name in names])


def _no_kernel(what: str, error: Exception) -> PlanError:
    reason = str(error).partition("\n")[0]  # behind the first line onnx.reference lists all its operators
    return PlanError(f"{what} cannot be executed: {reason}", hint="the reference runs what onnx.reference runs")


def _spell(domain: str) -> str:
    """The spelling of a domain that onnx.reference knows."""
    return "" if domain in STANDARD_DOMAINS else domain


def _respell(nodes: Iterable[onnx.NodeProto]) -> None:
    """Respell the domains of ``nodes`` and of the nodes in their subgraphs."""
    for node in nodes:
        node.domain = _spell(node.domain)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                _respell(graph.node)

"""Kernels of all other operators: those of onnx.reference, one node at a time.

They return new arrays or views of their inputs. An input that is read-only they cannot write to. The bodies of If,
Loop, Scan and local functions are not theirs; those of other operators that hold graphs (SequenceMap) are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError

from mutcache.errors import PlanError
from mutcache.model import STANDARD_DOMAINS, Model, Node
from mutcache.proto.onnx_ml import GraphProto, NodeProto, ValueInfoProto
from mutcache.scopes import captures

#: Computes the outputs of one node from the values of its graph by name; the absent value ``""`` is None.
Kernel = Callable[[Mapping[str, Any]], Sequence[Any]]


class StandardKernels:
    """Loads the kernels of one model's nodes."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def load(self, node: Node, proto: NodeProto, opsets: Mapping[str, int]) -> Kernel:
        """The kernel of ``node``.

        Args:
            node: the node; absent inputs and outputs are ``""``.
            proto: its message without references to attributes of a function.
            opsets: the operator sets of the graph that it stands in.

        Raises:
            PlanError: onnx.reference has none.
        """
        try:
            kernel = self._load(proto, opsets)
        except RuntimeContextError:  # its definition depends on the types of its operands
            return _LateKernel(self, node, proto, opsets)
        except Exception as error:
            raise _no_kernel(node.label, error) from error
        return _prepare(kernel, node)

    def load_for(self, node: Node, proto: NodeProto, opsets: Mapping[str, int], operands: Mapping[str, Any]) -> Kernel:
        """The kernel for operands of these types.

        Raises:
            PlanError: onnx.reference has none.
        """
        known = []
        for name, value in operands.items():
            if isinstance(value, np.ndarray):
                known.append(ValueInfoProto(name=name))
                known[-1].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(value.dtype)
        try:
            return _prepare(self._load(proto, opsets, known), node)
        except Exception as error:
            raise _no_kernel(node.label, error) from error

    def _load(self, proto: NodeProto, opsets: Mapping[str, int], types: Iterable[ValueInfoProto] = ()) -> Any:
        # An evaluator of this one node: it finds the kernel as it would for a whole graph.
        stock = onnx.GraphProto.FromString(GraphProto(node=[proto], value_info=types).SerializeToString())
        holds_graphs = any(attribute.HasField("g") or attribute.graphs for attribute in proto.attribute)
        _respell(stock.node)
        spelled = {_spell(domain): version for domain, version in opsets.items()}
        functions = self._functions if holds_graphs else []
        return ReferenceEvaluator(stock, opsets=spelled, functions=list(functions)).rt_nodes_[0]

    @cached_property
    def _functions(self) -> list[ReferenceEvaluator]:
        """The local functions that onnx.reference can run, for the bodies that it runs."""
        loaded: list[ReferenceEvaluator] = []
        for function in self._model.proto.functions:
            stock = onnx.FunctionProto.FromString(function.SerializeToString())
            _respell(stock.node)
            for opset in stock.opset_import:
                opset.domain = _spell(opset.domain)
            try:
                loaded.append(ReferenceEvaluator(stock, functions=list(loaded)))
            except Exception:  # a body that calls it has no kernel, and says so
                continue
        return loaded


class _LateKernel:
    """The kernel of an operator that depends on the types of its operands, for those it meets."""

    def __init__(self, kernels: StandardKernels, node: Node, proto: NodeProto, opsets: Mapping[str, int]) -> None:
        self._kernels = kernels
        self._node = node
        self._proto = proto
        self._opsets = opsets
        self._loaded: dict[tuple[object, ...], Kernel] = {}

    def __call__(self, values: Mapping[str, Any]) -> Sequence[Any]:
        operands = {name: values[name] for name in self._node.inputs if name}
        key = tuple(getattr(value, "dtype", None) for value in operands.values())
        kernel = self._loaded.get(key)
        if kernel is None:
            kernel = self._loaded[key] = self._kernels.load_for(self._node, self._proto, self._opsets, operands)
        return kernel(values)


def _prepare(kernel: Any, node: Node) -> Kernel:
    names = node.inputs
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

"""Models for the cases, in the words of the specification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from onnx import helper

from mutcache.model import DOMAIN, DOMAIN_VERSION, Dim
from mutcache.proto import IR_VERSION
from mutcache.proto.onnx_ml import (
    AttributeProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueAliasProto,
    ValueInfoProto,
)

#: Version of the standard operators; the newest that the cases need (TensorScatter came with 24).
OPSET = 24

MUST_ALIAS = ValueAliasProto.MUST_ALIAS


def tensor(
    name: str, dtype: int, dims: Sequence[Dim] | None, *, mutable: bool = False, alias_of: str = ""
) -> ValueInfoProto:
    """A value of tensor type; ``dims`` None says nothing about the shape, not even the rank."""
    value = ValueInfoProto(name=name)
    value.type.tensor_type.elem_type = dtype
    if dims is not None:
        value.type.tensor_type.shape.SetInParent()
        for dim in dims:
            added = value.type.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                added.dim_value = dim
            elif dim is not None:
                added.dim_param = dim
    if mutable:
        value.access = ValueInfoProto.READ_WRITE
    if alias_of:
        value.alias_of = alias_of
    return value


def node(
    op_type: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, int | str] = MappingProxyType({}),
    *,
    domain: str = "",
) -> NodeProto:
    """A node without aliases."""
    made = NodeProto(op_type=op_type, domain=domain, input=inputs, output=outputs)
    for name, value in attributes.items():
        made.attribute.append(AttributeProto.FromString(helper.make_attribute(name, value).SerializeToString()))
    return made


def aliased(
    made: NodeProto, output_index: int = 0, input_index: int = 0, kind: ValueAliasProto.Kind.ValueType = MUST_ALIAS
) -> NodeProto:
    """The node, with one more alias entry."""
    made.output_alias.add(output_index=output_index, input_index=input_index, kind=kind)
    return made


def update(
    cache: str, values: str, position: str, output: str, attributes: Mapping[str, int | str] = MappingProxyType({})
) -> NodeProto:
    """A CacheUpdate that carries its alias."""
    return aliased(node("CacheUpdate", [cache, values, position], [output], attributes, domain=DOMAIN))


def initializer(name: str, dtype: int, dims: Sequence[int], content: bytes) -> TensorProto:
    """A constant with the given little-endian bytes."""
    return TensorProto(name=name, data_type=dtype, dims=dims, raw_data=content)


def model(
    inputs: Iterable[ValueInfoProto],
    nodes: Iterable[NodeProto],
    outputs: Iterable[ValueInfoProto],
    *,
    initializers: Iterable[TensorProto] = (),
    value_info: Iterable[ValueInfoProto] = (),
    ir_version: int = IR_VERSION,
) -> ModelProto:
    """A model of one graph; domains are imported as its nodes need them."""
    made = ModelProto(ir_version=ir_version)
    made.graph.name = "case"
    made.graph.input.extend(inputs)
    made.graph.node.extend(nodes)
    made.graph.output.extend(outputs)
    made.graph.initializer.extend(initializers)
    made.graph.value_info.extend(value_info)
    made.opset_import.add(domain="", version=OPSET)
    if any(one.domain == DOMAIN for one in made.graph.node):
        made.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    return made

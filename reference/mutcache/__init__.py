"""Specification toolkit for ONNX mutable execution caches: check, plan and run models that update caches in place."""

from mutcache.alias import AliasClasses, ModelAliases, Storage, alias_classes
from mutcache.check import check_model, diagnose
from mutcache.diagnostics import Diagnostic, Location, Severity
from mutcache.errors import BindError, CheckError, DecodeError, MutcacheError, PlanError, RunError
from mutcache.executor import Binding, Session
from mutcache.infer import infer_shapes
from mutcache.inline import inline
from mutcache.lower import lower, storage_of_outputs, strip
from mutcache.memory_plan import MemoryPlan
from mutcache.model import DOMAIN, DOMAIN_VERSION
from mutcache.page_protos import page_table_from_proto, page_table_to_proto
from mutcache.paging import Page, PageTable
from mutcache.plan import ExecutionPlan, plan
from mutcache.prefix import add_prefix
from mutcache.proto import IR_VERSION, from_onnx, load, parse, save, serialize, to_onnx
from mutcache.proto.onnx_ml import ModelProto, ValueAliasProto, ValueInfoProto
from mutcache.requirements import Req
from mutcache.transform import sort

READ_ONLY = ValueInfoProto.READ_ONLY
READ_WRITE = ValueInfoProto.READ_WRITE
MUST_ALIAS = ValueAliasProto.MUST_ALIAS

__all__ = [
    "DOMAIN",
    "DOMAIN_VERSION",
    "IR_VERSION",
    "MUST_ALIAS",
    "READ_ONLY",
    "READ_WRITE",
    "AliasClasses",
    "BindError",
    "Binding",
    "CheckError",
    "DecodeError",
    "Diagnostic",
    "ExecutionPlan",
    "Location",
    "MemoryPlan",
    "ModelAliases",
    "ModelProto",
    "MutcacheError",
    "Page",
    "PageTable",
    "PlanError",
    "Req",
    "RunError",
    "Session",
    "Severity",
    "Storage",
    "add_prefix",
    "alias_classes",
    "check_model",
    "diagnose",
    "from_onnx",
    "infer_shapes",
    "inline",
    "load",
    "lower",
    "page_table_from_proto",
    "page_table_to_proto",
    "parse",
    "plan",
    "save",
    "serialize",
    "sort",
    "storage_of_outputs",
    "strip",
    "to_onnx",
]

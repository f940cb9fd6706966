"""Requirements of the specification. Generated from spec/*.rst by mutcache_tools.generate; do not edit."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How binding a requirement is, in the sense of RFC 2119."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class Subject(enum.StrEnum):
    """Whom a requirement binds: a model, a runtime seen from outside, or only this project's own tools."""

    MODEL = "model"
    RUNTIME = "runtime"
    TOOL = "tool"


class Phase(enum.StrEnum):
    """When a violation may be caught. For a runtime under test the first three are one: loading."""

    DECODE = "decode"
    CHECK = "check"
    PLAN = "plan"
    BIND = "bind"
    RUN = "run"


class Profile(enum.StrEnum):
    """The part of the specification that a runtime may claim."""

    DENSE = "dense"
    FLOW = "flow"
    PAGED = "paged"
    HETEROGENEOUS = "heterogeneous"
    MEMORY = "memory"
    CONCURRENCY = "concurrency"


class Status(enum.StrEnum):
    """Only a final requirement counts: a planned one has no cases yet, a retired one only keeps its number."""

    FINAL = "final"
    PLANNED = "planned"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One entry of the specification.

    Attributes:
        level: MUST or SHOULD.
        subject: whom it binds.
        phases: when a violation may be caught, in order.
        profile: the profile that it counts for.
        status: whether it counts.
        sentence: the normative text in reStructuredText, white space normalized.
        text_hash: SHA-256 of level, subject, phases, profile and sentence: it changes when the obligation does.
        chapter: file name of its chapter in ``spec/``.
    """

    level: Level
    subject: Subject
    phases: tuple[Phase, ...]
    profile: Profile
    status: Status
    sentence: str
    text_hash: str
    chapter: str


class Req(enum.StrEnum):
    """The permanent IDs. A number is never reused."""

    MC_PROTO_001 = "MC-PROTO-001"
    MC_PROTO_002 = "MC-PROTO-002"
    MC_PROTO_003 = "MC-PROTO-003"
    MC_PROTO_004 = "MC-PROTO-004"
    MC_PROTO_005 = "MC-PROTO-005"
    MC_PROTO_006 = "MC-PROTO-006"
    MC_ALIAS_001 = "MC-ALIAS-001"
    MC_ALIAS_002 = "MC-ALIAS-002"
    MC_ALIAS_003 = "MC-ALIAS-003"
    MC_ALIAS_004 = "MC-ALIAS-004"
    MC_ALIAS_005 = "MC-ALIAS-005"
    MC_ALIAS_006 = "MC-ALIAS-006"
    MC_ALIAS_007 = "MC-ALIAS-007"
    MC_ALIAS_008 = "MC-ALIAS-008"
    MC_ALIAS_009 = "MC-ALIAS-009"
    MC_ALIAS_010 = "MC-ALIAS-010"
    MC_ALIAS_011 = "MC-ALIAS-011"
    MC_ALIAS_012 = "MC-ALIAS-012"
    MC_ALIAS_013 = "MC-ALIAS-013"
    MC_ALIAS_014 = "MC-ALIAS-014"
    MC_ALIAS_015 = "MC-ALIAS-015"
    MC_ACCESS_001 = "MC-ACCESS-001"
    MC_ACCESS_002 = "MC-ACCESS-002"
    MC_ACCESS_003 = "MC-ACCESS-003"
    MC_ACCESS_004 = "MC-ACCESS-004"
    MC_ACCESS_005 = "MC-ACCESS-005"
    MC_SHAPE_001 = "MC-SHAPE-001"
    MC_SHAPE_002 = "MC-SHAPE-002"
    MC_SHAPE_003 = "MC-SHAPE-003"
    MC_SHAPE_004 = "MC-SHAPE-004"
    MC_SHAPE_005 = "MC-SHAPE-005"
    MC_SHAPE_006 = "MC-SHAPE-006"
    MC_FLOW_001 = "MC-FLOW-001"
    MC_FLOW_002 = "MC-FLOW-002"
    MC_FLOW_003 = "MC-FLOW-003"
    MC_FLOW_004 = "MC-FLOW-004"
    MC_FLOW_005 = "MC-FLOW-005"
    MC_FLOW_006 = "MC-FLOW-006"
    MC_FLOW_007 = "MC-FLOW-007"
    MC_FLOW_008 = "MC-FLOW-008"
    MC_FLOW_009 = "MC-FLOW-009"
    MC_PLAN_001 = "MC-PLAN-001"
    MC_PLAN_002 = "MC-PLAN-002"
    MC_PLAN_003 = "MC-PLAN-003"
    MC_PLAN_004 = "MC-PLAN-004"
    MC_PLAN_005 = "MC-PLAN-005"
    MC_PLAN_006 = "MC-PLAN-006"
    MC_PLAN_007 = "MC-PLAN-007"
    MC_BIND_001 = "MC-BIND-001"
    MC_BIND_002 = "MC-BIND-002"
    MC_BIND_003 = "MC-BIND-003"
    MC_BIND_004 = "MC-BIND-004"
    MC_BIND_005 = "MC-BIND-005"
    MC_BIND_006 = "MC-BIND-006"
    MC_BIND_007 = "MC-BIND-007"
    MC_BIND_008 = "MC-BIND-008"
    MC_BIND_009 = "MC-BIND-009"
    MC_BIND_010 = "MC-BIND-010"
    MC_BIND_011 = "MC-BIND-011"
    MC_BIND_012 = "MC-BIND-012"
    MC_BIND_013 = "MC-BIND-013"
    MC_DENSE_001 = "MC-DENSE-001"
    MC_DENSE_002 = "MC-DENSE-002"
    MC_DENSE_003 = "MC-DENSE-003"
    MC_DENSE_004 = "MC-DENSE-004"
    MC_DENSE_005 = "MC-DENSE-005"
    MC_DENSE_006 = "MC-DENSE-006"
    MC_DENSE_007 = "MC-DENSE-007"
    MC_DENSE_008 = "MC-DENSE-008"
    MC_DENSE_009 = "MC-DENSE-009"
    MC_DENSE_010 = "MC-DENSE-010"
    MC_DENSE_011 = "MC-DENSE-011"
    MC_DENSE_012 = "MC-DENSE-012"
    MC_DENSE_013 = "MC-DENSE-013"
    MC_DENSE_014 = "MC-DENSE-014"
    MC_PAGED_001 = "MC-PAGED-001"
    MC_PAGED_002 = "MC-PAGED-002"
    MC_PAGED_003 = "MC-PAGED-003"
    MC_PAGED_004 = "MC-PAGED-004"
    MC_PAGED_005 = "MC-PAGED-005"
    MC_PAGED_006 = "MC-PAGED-006"
    MC_PAGED_007 = "MC-PAGED-007"
    MC_PAGED_008 = "MC-PAGED-008"
    MC_PAGED_009 = "MC-PAGED-009"
    MC_PAGED_010 = "MC-PAGED-010"
    MC_PAGED_011 = "MC-PAGED-011"
    MC_PAGED_012 = "MC-PAGED-012"
    MC_PAGED_013 = "MC-PAGED-013"
    MC_PAGED_014 = "MC-PAGED-014"
    MC_PAGED_015 = "MC-PAGED-015"
    MC_PAGED_016 = "MC-PAGED-016"
    MC_PAGED_017 = "MC-PAGED-017"
    MC_PAGED_018 = "MC-PAGED-018"
    MC_QUANT_001 = "MC-QUANT-001"
    MC_QUANT_002 = "MC-QUANT-002"
    MC_QUANT_003 = "MC-QUANT-003"
    MC_QUANT_004 = "MC-QUANT-004"
    MC_QUANT_005 = "MC-QUANT-005"
    MC_QUANT_006 = "MC-QUANT-006"
    MC_MEM_001 = "MC-MEM-001"
    MC_MEM_002 = "MC-MEM-002"
    MC_MEM_003 = "MC-MEM-003"
    MC_MEM_004 = "MC-MEM-004"

    @property
    def entry(self) -> Requirement:
        """The requirement's entry in the specification."""
        return _ENTRIES[self]

    @property
    def level(self) -> Level:
        """MUST or SHOULD."""
        return _ENTRIES[self].level


_ENTRIES: dict[Req, Requirement] = {
    Req.MC_PROTO_001: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.CHECK, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "An absent ``access`` MUST mean ``READ_ONLY``, and a value without an alias MUST behave as if no other "
            "value had its storage. A model that does not use the delta MUST be accepted and executed exactly as it "
            "would be without this specification."
        ),
        text_hash="0293f76ebb66700c324847f4a7d8e9e98dd150d2b593d811b4760712baa74836",
        chapter="01-proto.rst",
    ),
    Req.MC_PROTO_002: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A model that uses the delta MUST declare ``ir_version`` 15 or higher."
        ),
        text_hash="86e889cce536eb91a9b6b8af28994fecc5265e95a0b9249929215246d506e266",
        chapter="01-proto.rst",
    ),
    Req.MC_PROTO_003: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The ``kind`` of every ``output_alias`` entry MUST be ``MUST_ALIAS``. An entry whose kind is absent, "
            "``UNDEFINED`` or a number that this version does not define MUST be rejected."
        ),
        text_hash="8175e24fd59732e267640aa04cfd7a0c72367f492968456e5b25653526046c05",
        chapter="01-proto.rst",
    ),
    Req.MC_PROTO_004: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The ``access`` of every ``ValueInfoProto`` MUST be ``READ_ONLY``, ``READ_WRITE`` or absent. An entry in "
            "which the field with the number of ``access`` holds anything else MUST be rejected."
        ),
        text_hash="b4a90a422c46d04cad5310db3db9d0cbed905ff02192cc1331cdbd095a921ec0",
        chapter="01-proto.rst",
    ),
    Req.MC_PROTO_005: Requirement(
        level=Level.MUST,
        subject=Subject.TOOL,
        phases=(Phase.DECODE,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Loading a model and saving it again MUST preserve every field of the delta, also where its value is not "
            "valid."
        ),
        text_hash="7cad4efe47f64cbbe3a674a48629ca2110cd41957c4d887c340d75734f822724",
        chapter="01-proto.rst",
    ),
    Req.MC_PROTO_006: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A model, or a function of a model, that contains an operator of the domain ``onnx.mutable_cache`` MUST "
            "import version 1 of that domain."
        ),
        text_hash="ea67fd2256d7a6ef7743187981d6a410319dc79867a19025e7d110b92ed13c15",
        chapter="01-proto.rst",
    ),
    Req.MC_ALIAS_001: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The ``output_index`` of every ``output_alias`` entry MUST be at least 0 and less than the number of "
            "outputs of its node, and the output at that index MUST be present: its name is not empty."
        ),
        text_hash="35ea18c937fcb4a10ccfff066a0599380cedc342aceb85c606c524da06f32ca4",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_002: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The ``input_index`` of every ``output_alias`` entry MUST be at least 0 and less than the number of inputs "
            "of its node, and the input at that index MUST be present: its name is not empty."
        ),
        text_hash="94b7f95d5cda3f5dd6cd1fbf63dd23a53d41663c90d5cd30d626944832181518",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_003: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "An output of a node MUST stand in at most one ``output_alias`` entry of that node."
        ),
        text_hash="e9eaba9629728cabd51265ca73395518ddf224a90f6d6a7cc3179a751dc832f2",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_004: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "An input of a node MUST stand in ``output_alias`` entries of at most one output of that node."
        ),
        text_hash="3d971ed2b51327776fbd86ccee14df3619bacba1c4f87d1d384639a841e5f312",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_005: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "When the producer of a value establishes an alias for it, an ``alias_of`` of that value MUST identify the "
            "same storage: it MUST name the value that the producer aliases, or another value of the same alias class "
            "that is defined earlier in the same graph or in a graph that encloses it."
        ),
        text_hash="a74756d995fc9f74cdd9858d989b0f1f6433e72e553b440d16f6bbb916c314df",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_006: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "``alias_of`` MUST name a value that is visible where it stands: a value of the same graph or function "
            "body, or of a graph that encloses it."
        ),
        text_hash="73a5e115a9c76dda1729364234e87961cc8708943179276d143eebf1d4bb5035",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_007: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Aliases MUST NOT form a cycle: no value may be reached again by following ``alias_of`` and "
            "``output_alias`` from value to value, through subgraphs too."
        ),
        text_hash="e65362e974506774285ae8e6515c098931acbcd417ccb9792a688c67fa6ea792",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_008: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A value with ``alias_of`` MUST be the output of a node that establishes an alias for it. On an input of a "
            "graph or function, on an initializer, and on an output for which its node establishes no alias, "
            "``alias_of`` MUST be rejected."
        ),
        text_hash="63fded03498106ad8a81c4dd18591f761df6786ca1a355a568ef636bc6754ee9",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_009: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "An output of a graph, subgraph or function whose alias root is an input of a graph or function MUST carry "
            "``alias_of``, unless the output is that input under its own name."
        ),
        text_hash="1644d0b2c82b1b191407d413d304974035e442b1e435cb8565927834088e8f16",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_010: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The root of every alias class that a node mutates MUST be an input of the main graph with access "
            "``READ_WRITE``. In a subgraph or function it MUST be a value that resolves to such an input, through a "
            "capture or through a formal input with access ``READ_WRITE``."
        ),
        text_hash="a692ed317df655505485c1976abcb7491e60ca0f0731f8427f0d124283213948",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_011: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A stale name MUST NOT be used: neither as an input of a later node, nor captured by a subgraph of one, "
            "nor as an output of the graph. As an input of ``Shape`` or ``Size`` it MAY be used."
        ),
        text_hash="5c206bdf8fc41d88379050e3b611b7e9720fdf66c8d26b357cdd0b3548a67ce8",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_012: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Every version of an alias class MUST be mutated by at most one node. A node that mutates a stale name "
            "MUST be rejected."
        ),
        text_hash="9136870844324167793078b349d27e056ef0424e44e630d803ff84a43fbc2f35",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_013: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "An alias class MUST have exactly one root. Aliases that would connect two different roots MUST be "
            "rejected."
        ),
        text_hash="05d44ed533d4028d092cf53f82ca5ed0350f08db7e351a15da07b8ed4e46c164",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_014: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A node that mutates an alias class MUST have exactly one operand in that class. Operands are explicit "
            "inputs, among them initial values of carried slots, scan inputs and arguments of a call, and the values "
            "that subgraphs of the node capture."
        ),
        text_hash="2112ab3bd1fc6982fcb9d74d75ab8157591249450951684466f4ba0f6c509a43",
        chapter="02-alias.rst",
    ),
    Req.MC_ALIAS_015: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK, Phase.PLAN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A ``CacheUpdate`` or ``PagedCacheUpdate`` node MUST carry exactly one ``output_alias`` entry, ``{0, 0, "
            "MUST_ALIAS}``. An If node MUST NOT carry one, and an entry of a Loop node, a Scan node or a function call "
            "MUST agree with the alias that the body establishes. A runtime that cannot execute an alias of any other "
            "operator in place MUST reject the model when it loads it."
        ),
        text_hash="597e1968f1fd7419cfb322045ded7d49080adee20933e9180c455c112f917b45",
        chapter="02-alias.rst",
    ),
    Req.MC_ACCESS_001: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Access ``READ_WRITE`` MUST stand only on an input of the main graph, or on a formal input of a Loop body, "
            "a Scan body or a function that is bound to a value whose alias root is such an input."
        ),
        text_hash="ba8a1c709e6d2e84b920027aea8de2207bfb3766082c4aafdfe626b81715b83c",
        chapter="03-access.rst",
    ),
    Req.MC_ACCESS_002: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "An input with access ``READ_WRITE`` MUST NOT have an initializer of the same name, dense or sparse."
        ),
        text_hash="df54509c6f6ea51dbc5336b4ba827265d0766e2aafdc714efe3e5c529991549c",
        chapter="03-access.rst",
    ),
    Req.MC_ACCESS_003: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The type of an input with access ``READ_WRITE`` MUST be a tensor of any element type but STRING, a "
            "sequence of quantized tensors, or a map to quantized tensors."
        ),
        text_hash="1c24d4a12c3268f814431aab2c25db89bc88a4003ba78178cec2b77a5ccab48f",
        chapter="03-access.rst",
    ),
    Req.MC_ACCESS_004: Requirement(
        level=Level.SHOULD,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "An input of the main graph with access ``READ_WRITE`` SHOULD be the root of an alias class that some node "
            "mutates."
        ),
        text_hash="bfa2060efb42edd39b9d677b7da179aa2b0759b0cc9f525eac415bf4d44ba889",
        chapter="03-access.rst",
    ),
    Req.MC_ACCESS_005: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "A sequence of or map to quantized tensors MUST be consumed only by operators of the domain "
            "``onnx.mutable_cache``, by ``Identity``, control flow and function calls, a sequence also by "
            "``SequenceLength``. A map as an input or output of a control flow node and a sequence as the state of a "
            "Scan MUST be rejected."
        ),
        text_hash="5557e5987c53b862e08f906a239e6319bf8d69ab3d05d65400fffa151a2b1b10",
        chapter="03-access.rst",
    ),
    Req.MC_SHAPE_001: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "All names of an alias class MUST have the same kind of type and the same element type."
        ),
        text_hash="30197b3d01b9c91f388afc716c9eae16f82a5aa2e8b39ec3d747de07cd077572",
        chapter="04-shape.rst",
    ),
    Req.MC_SHAPE_002: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "All names of an alias class whose rank is known MUST have the same rank."
        ),
        text_hash="3b8472414bffd5501d71a2a6638e42141e97591b157ee47cfee2a6c3c7d2dfcd",
        chapter="04-shape.rst",
    ),
    Req.MC_SHAPE_003: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "All names of an alias class MUST have the same dimensions. A symbol stands for one size throughout its "
            "graph; where two sizes of one dimension, or two sizes of one symbol, differ, the model MUST be rejected, "
            "or where they become known only then, the run MUST fail."
        ),
        text_hash="bbcbceffd83673ae42b4cbdeee1a073fd315c34052310e01cc66f9aa8b378e9c",
        chapter="04-shape.rst",
    ),
    Req.MC_SHAPE_004: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "What is known of the type and shape of one name of an alias class MUST hold for every other name of the "
            "class in all requirements of this specification."
        ),
        text_hash="4d4c106602cdfe005530a6d057ad18965327298508ec87b964476f299efc613c",
        chapter="04-shape.rst",
    ),
    Req.MC_SHAPE_005: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A ``CacheUpdate`` whose position, length and capacity are statically known MUST be rejected when a "
            "position is negative, when in linear mode position + length > capacity, or when in circular mode length > "
            "capacity. In a subgraph that may not be executed it MUST NOT be rejected at load."
        ),
        text_hash="93568745bea50321a6a6e83998b6c380919b85c9760b3817d6c9717fdd8f14c4",
        chapter="04-shape.rst",
    ),
    Req.MC_SHAPE_006: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The operands of a ``CacheUpdate`` MUST agree. The rank of ``cache`` is at least 1; ``axis`` and, if "
            "present, ``batch_axis`` lie in [-rank, rank - 1] and name two different axes; ``values`` has the element "
            "type and the rank of ``cache`` and, along every axis but ``axis``, its size; ``position`` is INT64 and "
            "has rank 0, or with ``batch_axis`` the shape [size of ``cache`` along ``batch_axis``]."
        ),
        text_hash="48c93ad847bf4af75d119b6e058663fdacc55abee8ae28ad463796799484195e",
        chapter="04-shape.rst",
    ),
    Req.MC_FLOW_001: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "When an output of an If node aliases a value from outside its branches, it MUST resolve to the same alias "
            "root in every branch."
        ),
        text_hash="0e953417c54f71018729b50e53293b6f8d891dcce5dc57c4a2e5fddb43c1472b",
        chapter="05-flow.rst",
    ),
    Req.MC_FLOW_002: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "An output of an If node MUST alias a value from outside its branches in every branch or in none."
        ),
        text_hash="1cf24a2e1ffa238c0297bb779cb982d0c7f6f74f0949e05fc02df6e74386aaea",
        chapter="05-flow.rst",
    ),
    Req.MC_FLOW_003: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "A branch that leaves a class unmodified which another branch mutates MUST return the current version of "
            "the class through an ``Identity`` node that carries ``{0, 0, MUST_ALIAS}``."
        ),
        text_hash="f2b5077b47ad44d791b1061de8e084ebd9355c1867fdfe06177c1ef2c6958866",
        chapter="05-flow.rst",
    ),
    Req.MC_FLOW_004: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "When a Loop mutates the alias class of a carried slot, the body output of that slot MUST alias the body "
            "input of the same slot. A body output of a carried slot MUST NOT alias the body input of another slot or "
            "a captured value. When the body output of a slot aliases its body input, the Loop's output of that slot "
            "MUST be the storage of its initial value, also when the Loop makes no trip."
        ),
        text_hash="6b14bf17553e8dd738aa29a9021c24d7753dae5a82159adb54396f36d7f555d4",
        chapter="05-flow.rst",
    ),
    Req.MC_FLOW_005: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "MC-FLOW-004 MUST hold for the state variables of a Scan as for the carried slots of a Loop. A scan output "
            "of a Scan or Loop node MUST NOT alias: neither ``output_alias`` nor ``alias_of`` names it."
        ),
        text_hash="e3265cd021b741e94fa2dcc61c44c8c3804b2de06b490e20ed8a04a30c14262c",
        chapter="05-flow.rst",
    ),
    Req.MC_FLOW_006: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "The body of a Loop, a Scan, or any other operator but If that holds a graph MUST NOT mutate a class that "
            "it captures. A Loop or Scan body MUST NOT capture a class that it also carries, except as an input of "
            "``Shape`` or ``Size``. A branch of an If MAY mutate a class that it captures."
        ),
        text_hash="a50c1a841d4391bffe1a1f0b5b4fd41817696b1211acd11fb8236d1c254edf24",
        chapter="05-flow.rst",
    ),
    Req.MC_FLOW_007: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "A formal input whose class a function mutates MUST be ``READ_WRITE`` in ``FunctionProto.value_info``, the "
            "output that returns it MUST carry ``alias_of``, and at every call the argument's alias root MUST be a "
            "``READ_WRITE`` input of the main graph. One storage MUST NOT be passed to two parameters of which one is "
            "mutated."
        ),
        text_hash="5ae09188241cd21dc60a15ca518d3d9e2a1772bc6b01e8cf1ac1ac966934cd61",
        chapter="05-flow.rst",
    ),
    Req.MC_FLOW_008: Requirement(
        level=Level.MUST,
        subject=Subject.TOOL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "A tool that inlines functions, renames values or prefixes names MUST replace the name in every "
            "``alias_of`` by the name that the same value has in the result. A tool that inlines a function MUST drop "
            "``access`` of its formal inputs, whose place the arguments take, and MUST keep storage that a body hands "
            "through one storage wherever the caller annotates it so."
        ),
        text_hash="4c545f3828fc9bed271ead114acbf5b70e9877cde4940b82ebc60593f0f289b6",
        chapter="05-flow.rst",
    ),
    Req.MC_FLOW_009: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.FLOW,
        status=Status.FINAL,
        sentence=(
            "A class that a body mutates MUST leave through an output of its construct, in every branch; at every call "
            "of a function, that output MUST be named and the argument MUST be present. The same output of an If, Loop "
            "or Scan node MUST be named. A formal input of a Loop or Scan body whose class is mutated MUST be "
            "``READ_WRITE``."
        ),
        text_hash="c181bea68b935cf1d622b19210c9ba6b4c28570cb0bf6fa0f5e088461569c91d",
        chapter="05-flow.rst",
    ),
    Req.MC_PLAN_001: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.PLAN, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A runtime MUST NOT allocate storage for an output that aliases an input."
        ),
        text_hash="d10b7fd85fb1be23e569c5535ee65a1c55ad787bd46203602bff61f8983247e3",
        chapter="06-plan.rst",
    ),
    Req.MC_PLAN_002: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "From bind to release, within a run and between runs, a runtime MUST NOT release or move the storage of a "
            "mutable input, and MUST NOT use it for a value outside its alias class."
        ),
        text_hash="c78ac52fa3ce15d9bfe89936ddf852c538b4f1514493d3bb48740b98e33306c6",
        chapter="06-plan.rst",
    ),
    Req.MC_PLAN_003: Requirement(
        level=Level.MUST,
        subject=Subject.TOOL,
        phases=(Phase.PLAN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The peak memory that a plan states MUST count an update in place as zero bytes of cache, in every graph "
            "and function in which it stands, and MUST include the workspace of its kernel and the pages that it "
            "creates."
        ),
        text_hash="b8a2508bf3037a73abd8423702cb69a0a0e79c17496b7ec0e6218c6726f3ba7f",
        chapter="06-plan.rst",
    ),
    Req.MC_PLAN_004: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A node that mutates an alias class MUST be executed exactly once in every execution of its graph, whether "
            "or not its output is used. It MUST NOT be removed as dead, merged with an equal node, duplicated, or "
            "folded into a constant."
        ),
        text_hash="6eed0efc57aff592c4b8b19f4a2673e33f19b8e1848bbdbe1924fc248b33d8f3",
        chapter="06-plan.rst",
    ),
    Req.MC_PLAN_005: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A node that uses a version of an alias class and stands, in node order, before the node that mutates that "
            "version MUST see the contents before that mutation."
        ),
        text_hash="dd593337526fa78950169e317be7d81e20448a781dbb47cea69874c20c02dfbe",
        chapter="06-plan.rst",
    ),
    Req.MC_PLAN_006: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A value that does not belong to an alias class MUST keep the contents it had when its node was executed, "
            "whatever later nodes write into the storage of that class."
        ),
        text_hash="46bb89f617bdd557263c08c3f481ccd2a9d287f8d519d70c0a492f0ef79860e2",
        chapter="06-plan.rst",
    ),
    Req.MC_PLAN_007: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Reuse of buffers that a runtime does on its own account MUST NOT involve the storage of an alias class: "
            "neither as the buffer that is reused, nor by giving a name of the class another storage."
        ),
        text_hash="6f7c3fdb8340ca464b392013ad76196c29b154c58612fec499ae61a137942733",
        chapter="06-plan.rst",
    ),
    Req.MC_BIND_001: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A runtime MUST NOT run a session unless the caller has bound every input with access ``READ_WRITE`` as "
            "mutable. Such an input that is supplied as an ordinary value MUST be rejected."
        ),
        text_hash="7f750024fdb2c6625cb93190588a53748765c50837d06afeff9d16251209926c",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_002: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Binding read-only storage as mutable MUST be rejected: storage that the caller marked read-only, and "
            "storage that the process cannot write."
        ),
        text_hash="94063d5ffe1b329e64a92882708e4aa3064fa84f109c83c50984f82132135c93",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_003: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Binding storage as mutable that overlaps the storage of an initializer of any loaded model MUST be "
            "rejected."
        ),
        text_hash="4ab3bd6adb5ba4576921649c681c93bfe212717cc65c578178571fd2a90a0e2c",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_004: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A range bound as mutable that overlaps another range supplied to the same run MUST be rejected, be that "
            "another mutable input, an ordinary input, or an output that does not alias it. Byte ranges MUST be "
            "compared, not handles."
        ),
        text_hash="54f7d99314418d73f4fbf796be98a4f1ec23b6824444d069bac27850feb99be7",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_005: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND,),
        profile=Profile.CONCURRENCY,
        status=Status.FINAL,
        sentence=(
            "From bind to release, storage bound as mutable MUST belong to that binding alone: a second binding of it, "
            "or of storage that overlaps it, MUST be rejected, in another session and in the same one."
        ),
        text_hash="1991500bef9514c06265d5bfb7ac517731e15bc82002346519e0f9ae0edd2113",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_006: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Release MUST end the lease, after successful runs and after failed ones, so that the same storage can be "
            "bound again; a run of a released binding MUST be rejected. Ending a session MUST release its bindings."
        ),
        text_hash="4fc29e2d7e53a065fd6dda1bdedca877c009d2ace3c36476d882846da13af0a1",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_007: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Storage bound as mutable MUST be rejected when it is not contiguous in row-major order, has another "
            "element type or shape than the input, lies on a device where the session cannot update it in place, or is "
            "not aligned for its elements. A runtime MAY ask for a larger alignment, of at most 256 bytes, if it "
            "states it."
        ),
        text_hash="80dd949189413cf59e6bbb7ce5177377614847b45713a950aed629476516d1fa",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_008: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "When the caller supplies storage for an output that aliases a mutable input, it MUST be the storage bound "
            "to that input; other storage MUST be rejected. When the caller supplies none, the output MUST be the "
            "storage of that input."
        ),
        text_hash="7c18ebf9222a464ad60b98d6d77fbfb97657ea79cdfddccf16d96d1a2eee0189",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_009: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "In every run of a binding, the address of an output that aliases a mutable input MUST equal the address "
            "of the storage bound to that input."
        ),
        text_hash="81576edfaa565fa652c3bf887943d850517d2763994359db7ed163605620394c",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_010: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.PLAN, Phase.BIND, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A runtime MUST NOT replace an update in place by a copy of the cache, at load, at bind or in any run, "
            "wherever the copy lies and whether or not the result is copied back. Where it cannot update in place it "
            "MUST reject the model or the binding, or fail the run."
        ),
        text_hash="4ce4f5a1f1f70147c710b213006e44304ad66a2e81bfcbd655b8988c9403d55b",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_011: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND, Phase.RUN,),
        profile=Profile.CONCURRENCY,
        status=Status.FINAL,
        sentence=(
            "When a second run of a binding is asked for while one is in flight, it MUST be executed after the first "
            "or be rejected. The two MUST NOT be interleaved."
        ),
        text_hash="d29666b83846d3a0aa0e938648f0bf8de73ce98cde3d9d8d9fc3db34375d3c52",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_012: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.PLAN, Phase.BIND,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Loading a model whose initializer storage overlaps storage that is bound as mutable MUST be rejected."
        ),
        text_hash="61431c48de58be1811d7bbea73d8fcac66dd28b862c191e64853d437f50947fc",
        chapter="07-bind.rst",
    ),
    Req.MC_BIND_013: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND, Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Storage that the caller supplies for an output that aliases no mutable input MUST be rejected when it is "
            "read-only, not contiguous in row-major order, or of another element type or shape than the output."
        ),
        text_hash="1375e65d0b0a3b2fcfc5238b5b4742c50974d1d3c29cd07699789f2db856cde6",
        chapter="07-bind.rst",
    ),
    Req.MC_DENSE_001: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "After a valid ``CacheUpdate`` the written range MUST hold exactly the bytes of ``values``."
        ),
        text_hash="6b615af447b9bc86dccccf9c8e9e305f817807a94c4aa8f59f61632d286174ec",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_002: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A ``CacheUpdate`` MUST NOT change any byte outside the written range: no byte of the rows of the cache "
            "that it does not write, valid or not, and no byte outside the cache."
        ),
        text_hash="79fafaf507d6539f7518fe7d38f6f8025d2e4ab1ab7fee84eac9eefd91455d92",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_003: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A ``CacheUpdate`` that does not fit MUST fail: in linear mode one with position + length > capacity, in "
            "circular mode one with length > capacity."
        ),
        text_hash="21b1f6178911bd521f542692837a103f0596420720ef016fdadfb680f37c6385",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_004: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A ``CacheUpdate`` with a negative position MUST fail. The position MUST NOT be counted from the end, "
            "clamped, or skipped."
        ),
        text_hash="6d5a8df7255bb671293ab6e569a1f2259b26f1e7b33eda3b4ccaac52c2d2d845",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_005: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "The check of a position MUST be exact for every INT64: a sum that does not fit into the arithmetic of the "
            "runtime MUST NOT make an invalid update pass or a valid one fail."
        ),
        text_hash="feff6312995814a02bb10a88983cd11c99b2b91f7aa0f4b08d88adb90ec8d1dc",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_006: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "An update of length 0 MUST succeed for 0 <= position <= capacity and change nothing. A cache with a "
            "dimension of size 0 MUST be accepted."
        ),
        text_hash="2c2f965cc034cec61d77e93d3d313e3419e875c6188cb870ba55fcf684d92fbd",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_007: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A ``CacheUpdate`` MUST store every element bit for bit, payloads of NaN and signs of zero included, for "
            "the element types FLOAT, FLOAT16, BFLOAT16, INT8, UINT8, INT32, INT64 and BOOL, and for every further "
            "type of T that the runtime declares."
        ),
        text_hash="90cfc13493e2e163749276f908007f3970a543ecaea04e672b4882a7f92a8440",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_008: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A ``CacheUpdate`` MUST be supported for every rank from 1 on and for every ``axis`` of that rank, given "
            "from the front or from the end."
        ),
        text_hash="a65e1f5657e300df689fbc2bc584a9feea2efe7be4be7d9e630b654f07bd3547",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_009: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "Updates of one class in one graph MUST take effect in node order, each on the contents that the one "
            "before left."
        ),
        text_hash="4dffb1b7c54e0861ce31ce96f15af518b2b3a7c41b83ca1d8aa29525feb49001",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_010: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A run MUST start from the bytes that the bound storage holds at that time: what earlier runs left, and "
            "what the caller has written since."
        ),
        text_hash="9834406be021d239793ba0d6f35e700a07213c925376b758f9a011c3010eb499",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_011: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A runtime MUST NOT change the capacity of a cache. In particular an overflow MUST NOT be answered by a "
            "larger storage."
        ),
        text_hash="13b0f62580e687dc069acc32e56243f538c8dd0da60f2bac9c2a77546c026cf7",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_012: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "A ``CacheUpdate`` that fails MUST NOT change any byte, whichever of its positions is wrong. After a run "
            "that failed, each alias class MUST hold the result of some prefix of its updates in node order, each "
            "whole or absent, and the session and the binding MUST remain usable."
        ),
        text_hash="cd7c8022e862e5033bcac729f2fa9921c8c54c0f63f0029e25f5f606870772a6",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_013: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "With ``batch_axis``, each index k of that axis MUST be updated from row ``position[k]`` on, independently "
            "of the other indices."
        ),
        text_hash="7ec45f5d63a63229ba636d17099e992014f80571c3a362e8ed32f12a24bb1607",
        chapter="08-dense.rst",
    ),
    Req.MC_DENSE_014: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.DENSE,
        status=Status.FINAL,
        sentence=(
            "In circular mode, row j of ``values`` MUST be written to row (p + j) mod capacity for every position p >= "
            "0."
        ),
        text_hash="03c622df7cc63fcc86f1997b2d6e81c7b3cdf4a0de82a33a9bc3d492452b4473",
        chapter="08-dense.rst",
    ),
    Req.MC_PAGED_001: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "Updating an existing page whose type stays the same MUST NOT allocate, and MUST leave its payload at its "
            "address."
        ),
        text_hash="5f7a3e83b96af5838bf42f5e981e3b1bdeb884f0a2bd5fb81e076095cb4c06a0",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_002: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "An update MUST NOT change any byte of other pages. Unless it changes the type of its page, it MUST NOT "
            "change any byte of the rows that it does not write."
        ),
        text_hash="9ddf7b150acced6a1d5080c0a755f5f1264366a4f40575cd2629e04d8a395534",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_003: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "An update of page ``page_id == length`` of a sequence, or of an absent key of a map, MUST create that "
            "page and allocate nothing else; the payload of rows that the update does not write MUST be zero bytes."
        ),
        text_hash="037178243f4c0172f1de4ad5676ba1bddadffefe26730d3e6ca178b17c7f8d62",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_004: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.CHECK, Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "A negative ``page_id``, and for a sequence a ``page_id`` greater than its length, MUST be an error."
        ),
        text_hash="76b8731e8c2618647f893ae194f1d7f82e400f6d0a6b53fdf82f56611bfd7d00",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_005: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.CHECK, Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "An update with a negative position or with position + length greater than the page size along ``axis`` "
            "MUST fail."
        ),
        text_hash="adc2906c2cf224917b84358f9342804987681eb6da36e17af5b1a3a530cbd4c1",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_006: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.CHECK, Phase.BIND, Phase.RUN,),
        profile=Profile.HETEROGENEOUS,
        status=Status.FINAL,
        sentence=(
            "A quantized type that is no index into ``ModelProto.quantizations``, or that is missing from a non-empty "
            "``allowed_quantized_type``, MUST be rejected."
        ),
        text_hash="974434611a93e45e9833a299a544e29dbd03a66440fb6287788de0dab935828a",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_007: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.CHECK, Phase.BIND, Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "A page whose dims, decoded element type or ``n_bytes`` disagree with the container or with the layout of "
            "its declaration MUST be rejected."
        ),
        text_hash="e4e4c1fed28feaf087082b90a2e2f102d4566293ea6ceeef84eea2047c0e44f3",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_008: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.HETEROGENEOUS,
        status=Status.FINAL,
        sentence=(
            "Changing a page to a type of another byte size MUST replace that page only. Its old rows MUST be "
            "re-encoded, decoded from the old type and encoded into the new one; all other payloads MUST stay at their "
            "addresses."
        ),
        text_hash="dcc8fa4ec8f4d195ffbb8930b7490e5f6d0264a0f32b77ba20afcbcdefc9b39e",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_009: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.HETEROGENEOUS,
        status=Status.FINAL,
        sentence=(
            "Changing a page to a type of equal byte size MUST leave its payload at its address."
        ),
        text_hash="2981fd35370a5ba9a41783ba28bb7cbd14cd390bb806b5fb59d88c77f498d752",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_010: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "Growing the page table MUST NOT move or copy a payload."
        ),
        text_hash="a286814144b2ecfffbc1bbf86ac87be4220098294690605c360922f84b39115b",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_011: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND, Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "A page table in which two payloads are the same or overlap MUST be rejected."
        ),
        text_hash="1a5c0950f2cd17621b8cdb4c9e398de70619a35016733dad346e4fce0cfc8593",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_012: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "When a ``PagedCacheUpdate`` fails, for lack of memory too, the table and all payloads MUST be as they "
            "were before it."
        ),
        text_hash="9fbdd92cdc9f525e88fab02ad5f4ba2aa72457c6cef2ca59a7382cdf34b004e5",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_013: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "A page with a quantization whose groups span rows MUST NOT be written in part; a model that asks for it "
            "MUST be rejected."
        ),
        text_hash="5b4eb4b990d9219bd087234d1c76bf81eaa9b853a96c46587a1502471749926c",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_014: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.BIND, Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "A map container MUST behave as a sequence does, except that its keys MAY be any non-negative INT64 and "
            "MAY have gaps."
        ),
        text_hash="cce7182b3a6e7e776338012bb337f9307a351361e516aa4db12a3a534704c15f",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_015: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.HETEROGENEOUS,
        status=Status.FINAL,
        sentence=(
            "Creating a page without ``quantized_type`` MUST be an error, unless ``allowed_quantized_type`` has "
            "exactly one entry, which is then the type."
        ),
        text_hash="b3c8a77c16ff0b8b6b11c54f84ae581a5ac182fba673019ab27642045ae06515",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_016: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "Gathering a page that the table does not have MUST be an error."
        ),
        text_hash="4707f95646aca397b3dfb92fa67f52a682368ae89290e64201adaec03c4614cb",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_017: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.CHECK, Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "The operands of a ``PagedCacheUpdate`` and of a ``PagedCacheGather`` MUST agree. The pages have a rank of "
            "at least 1, and ``axis`` lies in [-rank, rank - 1]; ``values`` has the element type and the rank of the "
            "pages and, along every axis but ``axis``, their size; ``page_id``, ``position`` and ``quantized_type`` "
            "are INT64 of rank 0, ``page_ids`` is INT64 of rank 1."
        ),
        text_hash="5851ad71a726e8c4a01eed7ff96c29d80bab6eea56e79049d713b3bf9cdcfba1",
        chapter="09-paged.rst",
    ),
    Req.MC_PAGED_018: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "Creating the first page of a table MUST be an error when neither the container nor what is bound or "
            "supplied tells the size of a page along ``axis``."
        ),
        text_hash="2ef4c0fa948b08b49f7de45b124d5a173269cb21a87a8537d639d6e41949f92e",
        chapter="09-paged.rst",
    ),
    Req.MC_QUANT_001: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "The payload of a page MUST have the layout that its declaration determines."
        ),
        text_hash="121e41690fc6e9830da2c437b975405760906b6dfa95cba0bd277e043dc5e82d",
        chapter="10-quant.rst",
    ),
    Req.MC_QUANT_002: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "Every decoded element MUST differ by at most 1 unit in the last place of ``data_type`` from the element "
            "that the decoding formula gives."
        ),
        text_hash="9034af32e1745a03ecae454eec1a93b3f5a514b6047fcd04810aba400ac76fb2",
        chapter="10-quant.rst",
    ),
    Req.MC_QUANT_003: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "The error of an encoded element, decoded by the formula, MUST NOT exceed the bound of its declaration."
        ),
        text_hash="25b5bc64a314c90e096dd7c0f5e1faf358bb9a1e7e9a960c5d5cbc6511d804ed",
        chapter="10-quant.rst",
    ),
    Req.MC_QUANT_004: Requirement(
        level=Level.SHOULD,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "An encoded payload SHOULD equal that of the canonical encoder byte for byte."
        ),
        text_hash="416b378b01a7de7fb806421b523fb19bb6b6d5aa0944fa90848e78539dda061c",
        chapter="10-quant.rst",
    ),
    Req.MC_QUANT_005: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "A group of a ``packed_linear`` page that contains a NaN or an infinity MUST decode to NaN throughout. A "
            "``cast`` page MUST keep NaN and saturate infinities. A static ``linear`` page MUST encode NaN as code 0 "
            "and saturate infinities."
        ),
        text_hash="3332ad3a95deead108e79985c233f37bbe24007af1e1080a703d4120225023ad",
        chapter="10-quant.rst",
    ),
    Req.MC_QUANT_006: Requirement(
        level=Level.MUST,
        subject=Subject.MODEL,
        phases=(Phase.CHECK,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "A declaration that a page may have and that version 1 does not accept MUST be rejected at load."
        ),
        text_hash="ed64ed91a4aa6dbf88b916a24a2e91e58a08f56772b609dfc0ae0e41f4aa49f5",
        chapter="10-quant.rst",
    ),
    Req.MC_MEM_001: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.MEMORY,
        status=Status.FINAL,
        sentence=(
            "The memory that a session with dense caches takes beyond the storage bound to it, from load on, MUST NOT "
            "depend on the capacity of the caches; and what a run takes beyond what the process held when the run was "
            "asked for MUST NOT exceed a workspace of 8 MiB. This holds for a single update, a chain, and updates in "
            "branches, loops and functions."
        ),
        text_hash="78d832da36c0918a887fe8910ee89f7c36cb7e67aba659355a4ed6c489a899ed",
        chapter="11-mem.rst",
    ),
    Req.MC_MEM_002: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.MEMORY,
        status=Status.FINAL,
        sentence=(
            "The memory of a process MUST NOT grow with the number of runs of a binding, whether they succeed or are "
            "refused."
        ),
        text_hash="f827f49b7c72a99f345b6ac1700b564958d63f71302bcfa4531c3603454440a0",
        chapter="11-mem.rst",
    ),
    Req.MC_MEM_003: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "Creating pages MUST take at most 1.25 times the bytes of those pages, beside the workspace of 8 MiB."
        ),
        text_hash="4d79d52dd3a09d1e4dfa0c348fddcd0f0b3b9aca15c74bac929f56a66ec1f9d3",
        chapter="11-mem.rst",
    ),
    Req.MC_MEM_004: Requirement(
        level=Level.MUST,
        subject=Subject.RUNTIME,
        phases=(Phase.RUN,),
        profile=Profile.PAGED,
        status=Status.FINAL,
        sentence=(
            "Changing the type of a page MUST take at most 1.25 times the bytes of the old page and the new one, "
            "beside the workspace of 8 MiB."
        ),
        text_hash="a233702753e213990eddc93813b6e4a597792bc79b1f2387477c8851a1521352",
        chapter="11-mem.rst",
    ),
}

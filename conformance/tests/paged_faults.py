"""How the runtimes that are faulty with page tables are found out."""

from __future__ import annotations

from typing import Final

import faulty_codecs as codecs
import faulty_pages as pages
import faulty_tables as tables
from fault import Fault

from mutcache.requirements import Req

MOVED: Final = "it was, and must stay, at"
SUCCEEDED: Final = "succeeded; it must be refused"
UNWRITTEN: Final = "was not written, and is"
BEYOND: Final = "the bound is"

PAGED_FAULTS: Final = (
    # Where payloads are
    Fault(pages.AllocatesForUpdates, Req.MC_PAGED_001, ("paged-001/int4",), MOVED, ("bind-002/read-only",)),
    Fault(pages.MovesOnGrowth, Req.MC_PAGED_010, ("paged-010/behind-the-callers",), MOVED, ("paged-001/int4",)),
    Fault(
        pages.CopiesOnChange,
        Req.MC_PAGED_009,
        ("paged-009/int4-to-nvfp4",),
        MOVED,
        ("paged-001/int4", "paged-003/int4"),
    ),
    Fault(pages.ConvertsInPlace, Req.MC_PAGED_008, ("paged-008/from-identity",), "in memory of the caller's"),
    Fault(
        pages.TellsFalseAddresses,
        Req.MC_PAGED_003,
        ("paged-003/int4",),
        "where no memory is",
        ("paged-001/all", "paged-009/int4-to-nvfp4"),
    ),
    Fault(pages.ShowsACopy, Req.MC_PAGED_001, ("paged-001/all",), "it is a copy", ("bind-002/read-only",)),
    Fault(
        tables.SeparatesPayloads,
        Req.MC_PAGED_011,
        ("paged-011/by-one",),
        SUCCEEDED,
        ("paged-001/int4", "paged-011/read-only"),
    ),
    # What is written
    Fault(pages.LeaksIntoNewPages, Req.MC_PAGED_003, ("paged-003/int8",), UNWRITTEN, ("paged-001/int8",)),
    Fault(
        pages.WritesNeighbour,
        Req.MC_PAGED_002,
        ("paged-002/rows-int4", "paged-003/int4"),
        UNWRITTEN,
        ("bind-002/read-only",),
    ),
    Fault(pages.EncodesWholePages, Req.MC_PAGED_002, ("paged-002/any-bytes",), UNWRITTEN, ("paged-001/int8",)),
    Fault(pages.ForgetsOldRows, Req.MC_PAGED_008, ("paged-008/from-int8",), BEYOND, ("paged-009/int4-to-nvfp4",)),
    Fault(
        pages.SpoilsReplacedPayloads, Req.MC_PAGED_008, ("paged-008/from-int8",), "returns to the caller, has changed"
    ),
    # Which page, and which rows
    Fault(pages.ClampsPositions, Req.MC_PAGED_005, ("paged-005/by-one",), SUCCEEDED, ("paged-005/last-rows",)),
    Fault(pages.CountsFromTheEnd, Req.MC_PAGED_004, ("paged-004/minus-one",), SUCCEEDED, ("paged-004/gap",)),
    Fault(pages.ClosesGaps, Req.MC_PAGED_004, ("paged-004/gap",), SUCCEEDED, ("paged-004/minus-one",)),
    Fault(pages.TruncatesPageIds, Req.MC_PAGED_004, ("paged-004/two-to-the-32",), SUCCEEDED, ("paged-004/gap",)),
    Fault(pages.GathersOthers, Req.MC_PAGED_016, ("paged-016/length",), SUCCEEDED, ("paged-016/last",)),
    # What is to be refused
    Fault(
        tables.AllowsEveryType,
        Req.MC_PAGED_006,
        ("paged-006/change-disallowed",),
        SUCCEEDED,
        ("paged-006/change-unregistered",),
    ),
    Fault(tables.BelievesPayloads, Req.MC_PAGED_007, ("paged-007/n-bytes-less",), SUCCEEDED, ("paged-007/swapped",)),
    Fault(tables.IgnoresBudgets, Req.MC_PAGED_012, ("paged-012/budget-create-refused",), SUCCEEDED),
    Fault(
        tables.HalfDone,
        Req.MC_PAGED_012,
        ("paged-012/budget-create-refused", "paged-012/create-overflow"),
        "is a sequence of pages",
        ("paged-012/budget-create",),
    ),
    # How pages are encoded and decoded
    Fault(
        codecs.RoundsHalfAway,
        Req.MC_QUANT_004,
        ("quant-004/int8",),
        "not what the canonical encoder makes",
        ("quant-003/int8",),
    ),
    Fault(codecs.Truncates, Req.MC_QUANT_003, ("quant-003/int4",), BEYOND, ("quant-003/fp8",)),
    Fault(codecs.WrapsCodes, Req.MC_QUANT_003, ("quant-003/int8",), BEYOND, ("quant-003/fp8",)),
    Fault(codecs.HighNibbleFirst, Req.MC_QUANT_001, ("quant-001/int4",), BEYOND, ("quant-001/fp8",)),
    Fault(codecs.IgnoresLayouts, Req.MC_QUANT_001, ("quant-001/int8-interleaved",), UNWRITTEN, ("quant-001/int8",)),
    Fault(codecs.StoresOtherScales, Req.MC_QUANT_001, ("quant-001/int8",), BEYOND, ("quant-001/int4-float-scale",)),
    Fault(codecs.DropsNaN, Req.MC_QUANT_005, ("quant-005/int8",), "not nan", ("quant-003/int8",)),
    Fault(codecs.DecodesRoughly, Req.MC_QUANT_002, ("quant-002/any-float16",), "of a page is", ("bind-002/read-only",)),
    # What pages take
    Fault(tables.KeepsDecodedPages, Req.MC_MEM_003, ("mem-003/created",), "pages take more than"),
    Fault(tables.KeepsDecodedPages, Req.MC_MEM_004, ("mem-004/larger",), "pages take more than"),
)

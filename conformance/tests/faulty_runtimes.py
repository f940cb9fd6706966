"""Runtimes with one fault each: the reference, and something wrong with how it is used.

They show that the suite notices. Each is an adapter that a child process can host, as ``module:Class``; ``FAULTS`` says
by which requirement, in which cases and with which words each is found out. ``conformance/FAULTS.md`` is made of it.
"""

from __future__ import annotations

from typing import Final

import faulty_hosts as hosts
import faulty_memory as memory
import faulty_models as models
import faulty_storage as storage
import faulty_threads as threads
import faulty_writes as writes
from fault import UNTOUCHED, Fault
from paged_faults import PAGED_FAULTS

from mutcache.requirements import Req
from mutcache_conformance.status import Status

SUCCEEDED: Final = "succeeded; it must be refused"
REFUSED: Final = "it must succeed"
COPIED: Final = "memory grows with the cache"
LEAKS: Final = "memory grows with the number of runs"

FAULTS: Final = (
    # Where the bytes go
    Fault(
        writes.SilentCopy,
        Req.MC_BIND_010,
        ("bind-010/chain", "dense-001/seed-example"),
        "(written by the run), found",
        ("proto-001/unannotated",),
    ),
    Fault(
        writes.CopyAndCopyBack,
        Req.MC_BIND_009,
        ("bind-009/every-run",),
        "the output is a copy",
        ("plan-004/unread", "proto-001/unannotated"),
    ),
    Fault(
        writes.OffByOne,
        Req.MC_DENSE_001,
        ("dense-001/first-rows",),
        "expected",
        ("dense-001/last-rows", "plan-004/constant-operands"),
    ),
    Fault(writes.ZeroFills, Req.MC_DENSE_002, ("dense-002/middle",), "unchanged by the run", ("dense-001/last-rows",)),
    Fault(
        writes.WritesTooFar,
        Req.MC_DENSE_002,
        ("dense-002/odd-sizes",),
        "guard byte",
        ("proto-001/unannotated",),
    ),
    Fault(writes.Inserts, Req.MC_DENSE_002, ("dense-002/gap",), "unchanged by the run", ("dense-001/whole-cache",)),
    Fault(writes.Appends, Req.MC_DENSE_001, ("dense-001/again",), "expected", ("dense-001/first-rows",)),
    Fault(writes.StaleSnapshot, Req.MC_DENSE_010, ("dense-010/caller-writes",), "unchanged by the run"),
    Fault(writes.RemembersOperands, Req.MC_DENSE_010, ("dense-010/operands-rewritten",), "written by the run"),
    Fault(
        writes.FullSizeIgnoresStart,
        Req.MC_DENSE_014,
        ("dense-014/length-is-capacity", "dense-003/whole-cache-shifted"),
        "written by the run",
        ("dense-014/whole-turn", "dense-003/by-one"),
    ),
    Fault(
        writes.CanonicalNaNs,
        Req.MC_DENSE_007,
        ("dense-007/special-float",),
        "expected",
        ("dense-007/int32", "dense-003/by-one"),
    ),
    Fault(
        writes.ConvertsThroughDouble,
        Req.MC_DENSE_007,
        ("dense-007/special-int64",),
        "expected",
        ("dense-007/special-float", "dense-007/int32"),
    ),
    Fault(
        writes.OffsetsIn32Bits,
        Req.MC_DENSE_001,
        ("dense-001/beyond-4-gib",),
        "expected",
        ("dense-001/beyond-2-gib", "dense-001/seed-example"),
    ),
    Fault(
        writes.IgnoresAxis,
        Req.MC_DENSE_008,
        ("dense-008/rank-3-axis-0",),
        REFUSED,
        ("dense-008/rank-3-axis-1", "dense-003/by-one"),
    ),
    Fault(
        writes.IgnoresBatchAxis,
        Req.MC_DENSE_013,
        ("dense-013/different",),
        "expected",
        ("dense-013/equal", "dense-003/by-one"),
    ),
    Fault(writes.NotAtomic, Req.MC_DENSE_012, ("dense-012/last-row-overflows",), "after the refusal"),
    Fault(writes.StopsAfterRefusal, Req.MC_DENSE_012, ("dense-012/last-row-negative", "dense-003/by-one"), REFUSED),
    # Which positions are right
    Fault(writes.ClampsOverflow, Req.MC_DENSE_003, ("dense-003/by-one", "dense-003/row-at-capacity"), SUCCEEDED),
    Fault(
        writes.ChecksLongestAxis,
        Req.MC_DENSE_003,
        ("dense-003/last-axis",),
        SUCCEEDED,
        ("dense-003/by-one", "dense-001/seed-example"),
    ),
    Fault(writes.WrapsNegative, Req.MC_DENSE_004, ("dense-004/minus-length",), SUCCEEDED),
    Fault(writes.TruncatesPositions, Req.MC_DENSE_005, ("dense-005/two-to-the-32",), SUCCEEDED),
    Fault(
        writes.OverflowingCheck,
        Req.MC_DENSE_005,
        ("dense-005/sum-overflows",),
        SUCCEEDED,
        ("dense-005/sum-is-int64-max", "dense-005/two-to-the-32"),
    ),
    Fault(writes.WrapsLinear, Req.MC_DENSE_014, ("dense-014/linear-does-not-wrap", "dense-003/by-one"), SUCCEEDED),
    Fault(writes.SkipsBadRows, Req.MC_DENSE_013, ("dense-013/first-row-overflows",), SUCCEEDED),
    Fault(writes.Grows, Req.MC_DENSE_011, ("dense-011/one-more-when-full",), SUCCEEDED),
    Fault(writes.RefusesNoRows, Req.MC_DENSE_006, ("dense-006/at-capacity",), REFUSED),
    # Which storage is right
    Fault(storage.AcceptsFeeds, Req.MC_BIND_001, ("bind-001/fed",), SUCCEEDED),
    Fault(
        storage.AcceptsReadOnly,
        Req.MC_BIND_002,
        ("bind-002/read-only",),
        SUCCEEDED,
        ("bind-008/elsewhere", "dense-001/seed-example"),
    ),
    Fault(storage.AcceptsInitializers, Req.MC_BIND_003, ("bind-003/initializer", "bind-003/same-bytes"), SUCCEEDED),
    Fault(storage.AcceptsOverlap, Req.MC_BIND_004, ("bind-004/values-inside",), SUCCEEDED),
    Fault(
        storage.ComparesHandles,
        Req.MC_BIND_004,
        ("bind-004/caches-share-last-row",),
        SUCCEEDED,
        ("bind-004/same-storage", "bind-002/read-only"),
    ),
    Fault(storage.SharesLeases, Req.MC_BIND_005, ("bind-005/other-session", "bind-005/same-session"), SUCCEEDED),
    Fault(storage.KeepsHalfALease, Req.MC_BIND_005, ("bind-005/one-of-two-leased",), REFUSED, ("bind-005/both-free",)),
    Fault(
        storage.KeepsLeaseAfterFailure,
        Req.MC_BIND_006,
        ("bind-006/after-failure",),
        REFUSED,
        ("bind-006/after-success", "dense-001/seed-example"),
    ),
    Fault(storage.KeepsLeaseOfUnloaded, Req.MC_BIND_006, ("bind-006/unload-releases",), REFUSED),
    Fault(storage.RunsReleased, Req.MC_BIND_006, ("bind-006/run-after-release",), SUCCEEDED),
    Fault(storage.AcceptsStrided, Req.MC_BIND_007, ("bind-007/strided",), SUCCEEDED),
    Fault(storage.TakesAnyType, Req.MC_BIND_007, ("bind-007/float16-is-bfloat16",), SUCCEEDED),
    Fault(
        storage.NeedsMoreAlignment,
        Req.MC_BIND_007,
        ("bind-007/as-declared",),
        REFUSED,
        ("proto-001/unannotated",),
    ),
    Fault(storage.IgnoresOutputs, Req.MC_BIND_008, ("bind-008/elsewhere",), SUCCEEDED),
    # What is in place
    Fault(
        storage.MovesStorage,
        Req.MC_PLAN_002,
        ("plan-002/another-session-between",),
        "expected",
        ("dense-001/first-rows", "bind-002/read-only"),
    ),
    Fault(storage.CopiesInChains, Req.MC_BIND_010, ("bind-010/chain",), "expected"),
    Fault(
        storage.LiesAboutAddresses,
        Req.MC_BIND_009,
        ("bind-009/every-run",),
        "does not show it",
        ("plan-004/unread", "proto-001/unannotated"),
    ),
    Fault(
        storage.ReadsCallersStorage,
        Req.MC_BIND_010,
        ("bind-010/chain",),
        "(written by the run), found",
        ("proto-001/unannotated",),
    ),
    Fault(storage.SwapsOutputs, Req.MC_BIND_009, ("bind-009/two-caches",), "is at address"),
    # What a model means
    Fault(
        models.IgnoresAnnotations,
        Req.MC_PLAN_001,
        ("plan-001/intermediate",),
        "expected",
        ("proto-001/unannotated",),
    ),
    Fault(models.IgnoresOldAnnotations, Req.MC_PROTO_002, ("proto-002/older", "proto-002/older-alias-only"), SUCCEEDED),
    Fault(
        models.ChecksNothing,
        Req.MC_ALIAS_011,
        ("alias-011/read-after", "alias-009/missing", "access-001/output", "proto-004/unknown-output"),
        SUCCEEDED,
        ("dense-001/seed-example", "bind-002/read-only"),
    ),
    Fault(
        models.KnowsThePublicCorpus,
        Req.MC_ALIAS_011,
        ("alias-011/read-after", "access-001/output"),
        SUCCEEDED,
        ("dense-001/seed-example", "bind-002/read-only"),
        nonce=7,
    ),
    Fault(models.FoldsDefaults, Req.MC_SHAPE_005, ("shape-005/default-overridden",), REFUSED),
    Fault(models.TakesWhatFits, Req.MC_SHAPE_006, ("shape-006/values-batch-at-run",), SUCCEEDED),
    Fault(models.DropsUnread, Req.MC_PLAN_004, ("plan-004/unread",), "written by the run"),
    Fault(models.RunsTwice, Req.MC_PLAN_004, ("plan-004/once",), "written by the run", UNTOUCHED[:2]),
    Fault(
        models.ReusesDeadCaches,
        Req.MC_PLAN_007,
        ("plan-007/after-last-reader",),
        "storage",
    ),
    Fault(models.WritesFirst, Req.MC_PLAN_005, ("plan-005/elementwise", "plan-006/slice"), "of output", UNTOUCHED[:2]),
    Fault(models.ReturnsViews, Req.MC_PLAN_006, ("plan-006/slice",), "of output"),
    Fault(models.RejectsEverything, Req.MC_ALIAS_011, ("alias-011/read-after", "alias-011/read-before"), "twin", ()),
    Fault(
        models.AcceptsEverything,
        Req.MC_BIND_002,
        ("bind-002/read-only", "alias-011/read-after"),
        SUCCEEDED,
        UNTOUCHED[:1],
    ),
    # What is asked for at once
    Fault(threads.Interleaves, Req.MC_BIND_011, ("bind-011/second-run", "bind-011/two-caches"), "of output 'found'"),
    Fault(threads.MergesRuns, Req.MC_BIND_011, ("bind-011/second-run",), "of output 'found'"),
    Fault(
        threads.LooksAtIdleLeases,
        Req.MC_BIND_005,
        ("bind-005/of-run-in-other-session", "bind-005/last-row-of-run-in-same-session"),
        SUCCEEDED,
        ("bind-005/other-session", "bind-005/beside-run-in-other-session"),
    ),
    Fault(
        threads.LosesBesideFailure,
        Req.MC_BIND_011,
        ("bind-011/another-session-fails", "bind-011/same-session-fails"),
        "another session has failed",
        ("bind-011/another-session-beside", "dense-003/by-one"),
    ),
    # What memory is taken
    Fault(memory.HiddenCopy, Req.MC_MEM_001, ("mem-001/float16", "mem-001/unread"), COPIED),
    Fault(memory.CopiesInAndBack, Req.MC_MEM_001, ("mem-001/float16",), COPIED, ("plan-004/unread",)),
    Fault(memory.SecondCache, Req.MC_MEM_001, ("mem-001/axis-0",), COPIED, ("plan-004/unread",)),
    Fault(memory.ArenaFromLoad, Req.MC_MEM_001, ("mem-001/static",), COPIED, ("mem-001/chain", *UNTOUCHED)),
    Fault(memory.CopiesInChains, Req.MC_MEM_001, ("mem-001/chain", "mem-001/two-caches"), COPIED, ("mem-001/batch",)),
    Fault(memory.CopiesInLoops, Req.MC_MEM_001, ("mem-001/loop-three-trips", "mem-001/loop-in-a-branch"), COPIED),
    Fault(memory.CopiesInBranches, Req.MC_MEM_001, ("mem-001/branch-kept", "mem-001/nested-branch"), COPIED),
    Fault(memory.CopiesForFunctions, Req.MC_MEM_001, ("mem-001/function", "mem-001/function-twice"), COPIED),
    Fault(memory.CopiesInSharedMemory, Req.MC_MEM_001, ("mem-001/batch",), COPIED),
    Fault(memory.KeepsSharedCopy, Req.MC_MEM_001, ("mem-001/circular",), COPIED),
    Fault(memory.AdvisesAway, Req.MC_MEM_001, ("mem-001/long-chain",), COPIED),
    Fault(memory.CopiesOnce, Req.MC_MEM_001, ("mem-001/float16",), COPIED),
    Fault(memory.CopiesInHelper, Req.MC_MEM_001, ("mem-001/float16",), COPIED),
    Fault(memory.LargeWorkspace, Req.MC_MEM_001, ("mem-001/float16",), "that it may have as a workspace"),
    Fault(memory.ReservesSecondCache, Req.MC_MEM_001, ("mem-001/float16",), "no more than 8 MiB of memory to be had"),
    Fault(memory.LeaksAPage, Req.MC_MEM_002, ("mem-002/update", "mem-002/chain"), LEAKS, ("mem-001/float16",)),
    Fault(memory.LeaksWhenRefused, Req.MC_MEM_002, ("mem-002/refused",), LEAKS, ("mem-002/update",)),
    # What becomes of the process
    Fault(hosts.Hangs, Req.MC_DENSE_003, ("dense-003/by-one",), "no answer to run", status=Status.TIMEOUT),
    Fault(hosts.Crashes, Req.MC_DENSE_004, ("dense-004/minus-one",), "SIGSEGV", status=Status.CRASH),
    Fault(
        hosts.Exits,
        Req.MC_BIND_007,
        ("bind-007/misaligned",),
        "exited with status 134",
        UNTOUCHED[::2],
        status=Status.CRASH,
    ),
    Fault(hosts.RaisesErrors, Req.MC_DENSE_003, ("dense-003/by-one",), "IndexError"),
    Fault(hosts.AnswersGarbage, Req.MC_DENSE_001, ("dense-001/first-rows",), "protocol", ("proto-001/unannotated",)),
    Fault(
        hosts.OmitsOutputs,
        Req.MC_DENSE_001,
        ("dense-001/first-rows",),
        "the outputs are []",
        ("proto-001/unannotated",),
    ),
    *PAGED_FAULTS,
)

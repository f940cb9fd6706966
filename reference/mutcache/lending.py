"""What a caller lends: judged against the model when it is bound, and claimed for a lease."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from mutcache.errors import BindError
from mutcache.leases import Claim, Use
from mutcache.lent_table import table_claims
from mutcache.model import TensorType, Value, page_type
from mutcache.page_types import Declarations
from mutcache.paging import PageTable, table_problem
from mutcache.plan import ExecutionPlan
from mutcache.requirements import Req
from mutcache.storage import (
    Array,
    DeviceArray,
    check_writable_storage,
    is_device_array,
    match_dims,
    storage_of,
)

#: What a caller can lend to a binding.
Lendable = Array | PageTable | DeviceArray


class Lending:
    """Judges what callers lend to one session.

    Args:
        plan: the execution plan.
        declarations: the page types of the model.
        device: where the storage of mutable inputs has to be.

    Attributes:
        names: for each mutable input the declarations of all names of its class: they hold for one storage
            (MC-SHAPE-004).
    """

    def __init__(self, plan: ExecutionPlan, declarations: Declarations, device: str = "cpu") -> None:
        self._device = device
        self.names: dict[str, list[Value]] = {}
        for scope in plan.classes.walk():
            for value in scope.graph.declared():
                storage = scope.storage(value.name)
                if storage.scope is plan.classes:
                    self.names.setdefault(storage.name, []).append(value)
        self._graph = plan.model.graph
        self._root_of = plan.classes.root_of
        self._declarations = declarations

    def claim_mutable(self, mutable: Mapping[str, Lendable], symbols: dict[str, int]) -> list[Claim]:
        """The claims of what is bound to the mutable inputs; sizes of symbols are entered.

        Raises:
            BindError: MC-BIND-001, 002 or 007, MC-PAGED-006, 007, 011 or 014.
        """
        types = {value.name: value.type for value in self._graph.inputs if value.is_mutable}
        for name in mutable:
            if name not in types:
                raise BindError(
                    f"{name!r} is no READ_WRITE input of the model",
                    hint=f"READ_WRITE inputs: {', '.join(types) or 'none'}; feed all others to run()",
                )
        claims: list[Claim] = []
        for name, declared in types.items():
            if name not in mutable:
                raise BindError(
                    f"no storage for the READ_WRITE input {name!r}",
                    requirement=Req.MC_BIND_001,
                    hint="bind storage to every mutable input",
                )
            if isinstance(declared, TensorType):
                claims.append(self._claim_array(name, mutable[name], declared, symbols))
            else:  # the plan refuses what is no container of pages
                claims += self._claim_table(name, mutable[name], symbols)
        return claims

    def _claim_array(self, name: str, array: Lendable, declared: TensorType, symbols: dict[str, int]) -> Claim:
        storage = check_writable_storage(name, array, declared, symbols, device=self._device)
        for value in self.names[name]:
            if isinstance(value.type, TensorType) and (problem := match_dims(value.type.dims, storage.shape, symbols)):
                raise BindError(
                    f"storage of {name!r}, also named {value.name!r}: {problem}",
                    requirement=Req.MC_BIND_007,
                    hint="allocate the array with the shape that all names of the cache declare",
                    value=value.name,
                    got=storage.shape,
                )
        return Claim(name, storage.byte_range, Use.MUTABLE)

    def _claim_table(self, name: str, table: Lendable, symbols: dict[str, int]) -> list[Claim]:
        if not isinstance(table, PageTable):
            raise BindError(
                f"storage of {name!r}: declared a container of pages, got {type(table).__name__}",
                requirement=Req.MC_BIND_007,
                hint="bind a mutcache.PageTable",
            )
        own = next(value for value in self._graph.inputs if value.name == name)
        # The pages as they are now: until the lease is taken, runs of another binding may change them.
        judged = PageTable.of(table, own, self._declarations)  # refuses a map for a sequence, and the reverse
        if table.declarations != self._declarations:
            raise BindError(
                f"the table bound to {name!r} is made for a model with other quantizations",
                requirement=Req.MC_PAGED_006,
                hint="make a table of its pages for this model: PageTable(pages, model=..., value=...)",
            )
        self._require_here(name, judged)
        names = self.names[name]
        problem = table_problem(judged, names, is_written=True)
        if problem is not None:
            raise BindError(problem.message, requirement=problem.requirement, hint=problem.hint, value=name)
        for page in itertools.islice(judged.values(), 1):  # all pages have the same dims
            for value in names:
                element = page_type(value.type)
                if element is not None and (message := match_dims(element.dims, page.dims, symbols)):
                    raise BindError(
                        f"pages of {name!r}, also named {value.name!r}: {message}",
                        requirement=Req.MC_PAGED_007,
                        hint="one symbol has one size in all that is bound",
                    )
        return list(table_claims(name, table, judged))

    def _require_here(self, name: str, table: PageTable) -> None:
        for page_id, page in table.items():
            device = storage_of(page.payload).device
            if device != self._device:
                raise BindError(
                    f"page {page_id} of {name!r} is on {device}, the session needs it on {self._device}",
                    requirement=Req.MC_BIND_007,
                    hint="allocate all payloads on that device; nothing is ever staged through a copy",
                    got=device,
                )

    def claim_outputs(
        self, mutable: Mapping[str, Lendable], outputs: Mapping[str, Lendable], symbols: Mapping[str, int]
    ) -> list[Claim]:
        """The claims of arrays that take outputs of their own.

        Raises:
            BindError: MC-BIND-002, 007, 008 or 013.
        """
        types = {value.name: value.type for value in self._graph.outputs}
        claims = []
        for name, array in outputs.items():
            if name not in types:
                raise BindError(f"the model has no output {name!r}", hint=f"outputs: {', '.join(types)}")
            root = self._root_of.get(name)
            if root is not None and isinstance(mutable.get(root), PageTable):
                if array is not mutable[root]:
                    raise BindError(
                        f"output {name!r} is the page table bound to {root!r}, and cannot be another one",
                        requirement=Req.MC_BIND_008,
                        hint=f"leave it unbound, or bind the table of {root!r}",
                    )
                continue
            declared = types[name]
            if not isinstance(declared, TensorType):
                raise BindError(f"output {name!r} is no tensor", hint="leave it unbound")
            # Symbols that inputs do not fix get their size in each run.
            # What is no cache may be on either side: it is copied to its array in any case.
            device = "cpu" if root is None and not is_device_array(array) else self._device
            in_place = root is not None
            storage = check_writable_storage(name, array, declared, dict(symbols), in_place=in_place, device=device)
            if root is None:
                claims.append(Claim(name, storage.byte_range, Use.OUTPUT))
            elif root not in mutable or storage.byte_range != storage_of(mutable[root]).byte_range:
                raise BindError(
                    f"output {name!r} aliases {root!r} and cannot have storage of its own ({storage.byte_range})",
                    requirement=Req.MC_BIND_008,
                    hint=f"leave it unbound, or bind the array of {root!r}",
                )
        return claims

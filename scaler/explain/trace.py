"""One decision, laid out: what went in, what came out, and the answers to the questions that a person asks of it. Pure.

It decides nothing by itself. What would be answered without anybody's orders is asked of the policy.

Worked example: of a workload that a schedule's floor of 3 holds up, `case.verdict.replicas` is 3 and
`case.alone.replicas` 0: so it would sleep if nobody had ordered otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaler.engine.decision_log import Entry
from scaler.model import Reason
from scaler.policy.columns import REASONS, Constraints, Memory, Specs, Verdicts
from scaler.policy.kernel import answered, step
from scaler.workloads.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Case:
    """Columns with one slot each, as plain numbers.

    seen, stands, before, verdict, aside: of the entry. after: what is remembered of it.
    alone:   the verdict without anybody's order: Standing of the configuration, keep-warm and lease as they stood.
    whole:   every source of its demand was fresh, or known to have nothing.
    """

    entry: Entry
    seen: Any
    stands: Any
    before: Any
    verdict: Any
    aside: Any
    after: Any
    alone: Any
    whole: bool

    @classmethod
    def of(cls, entry: Entry) -> Case:
        given = entry.given
        specs = Specs.stack([entry.plan.spec])
        _, after = again(entry)
        plain = Constraints.plain(specs)._replace(keep_warm=given.standing.keep_warm, lease=given.standing.lease)
        alone, _ = step(specs, given.readings, plain, given.memory, entry.at)
        return cls(
            entry=entry,
            seen=_slot(given.readings),
            stands=_slot(given.standing),
            before=_slot(given.memory),
            verdict=_slot(given.verdicts),
            aside=_slot(given.aside),
            after=_slot(after),
            alone=_slot(alone),
            whole=bool(answered(specs, given.readings, given.memory)[0]),
        )

    @property
    def plan(self) -> WorkloadSpec:
        return self.entry.plan

    @property
    def at(self) -> float:
        """POSIX seconds."""
        return self.entry.at

    @property
    def raise_only(self) -> bool:
        return bool(self.entry.given.when.raise_only[0])

    @property
    def reason(self) -> Reason:
        return REASONS[self.verdict.reason]

    @property
    def may_sleep(self) -> bool:
        spec = self.plan.spec
        return spec.minimum == 0 if spec.sleeps is None else spec.sleeps

    @property
    def demand(self) -> float:
        """The largest of what its objectives ask for, in replicas; NaN where none is known."""
        known = self.verdict.demand[~np.isnan(self.verdict.demand)]
        return float(known.max()) if len(known) else np.nan

    @property
    def held(self) -> bool:
        """Something needed was missing, so that the last answer stood."""
        return not np.isnan(self.after.held_since) and not self.aside.imputed

    @property
    def work(self) -> float:
        """Requests waiting, running and held, of whatever part is fresh; NaN where nothing is known."""
        parts = [part for part in (self.seen.waiting, self.seen.running, self.seen.held) if not np.isnan(part)]
        return sum(parts) if parts else np.nan


def _slot(columns: Any) -> Any:
    """The first slot of every column: numbers where it has columns."""
    return type(columns)(*(column[0] if column.ndim > 1 else column[0].item() for column in columns))


def again(entry: Entry) -> tuple[Verdicts, Memory]:
    """What `policy.step` answers to this entry, and what it would remember; every column has one slot."""
    given = entry.given
    raise_only = bool(given.when.raise_only[0])
    specs = Specs.stack([entry.plan.spec])
    return step(specs, given.readings, given.standing, given.memory, entry.at, raise_only=raise_only)

"""What a replay says at the end: the document of `-o json`, and the rows that table and report are made of. Pure.

Worked example: two policies on one load make `{"load": "office", "server": "A", "slo": {…}, "policies": [{"name":
"tidegate", "slo_met_ratio": 0.996, "gpu_hours": 170.2, "ratio_to_clairvoyant": 1.17, …}, …]}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

from .clairvoyant import ClairvoyantPlan
from .profiles import ServerProfile, Slo
from .report import ResultRow, TraceSection
from .run import Replayed
from .score import Score, score
from .trace import Trace
from .walk import BIN_S


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One policy on one load. parameters: those that are not the default, in the words of `--policy`."""

    name: str
    parameters: Mapping[str, int | float | str]
    course: Replayed

    @property
    def score(self) -> Score:
        return score(self.course)

    @property
    def label(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.parameters.items())


@dataclass(frozen=True, slots=True, eq=False)
class TraceResult:
    """One load. plan: of somebody who knew it; None where it was not looked for. fluid_gpu_hours: what nobody is under.

    notes: about how the load was read.
    """

    load: Trace
    profile: ServerProfile
    played: Sequence[Played]
    plan: ClairvoyantPlan | None
    fluid_gpu_hours: float
    notes: Sequence[str] = ()

    def ratio(self, gpu_hours: float) -> float:
        return gpu_hours / self.plan.gpu_hours if self.plan is not None and self.plan.gpu_hours else nan

    def to_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "load": self.load.name,
            "server": self.profile.name,
            "slo": _promise(self.profile.promise),
            "requests": len(self.load.at),
            "span_s": self.load.span_s,
            "fluid_bound_gpu_hours": self.fluid_gpu_hours,
            "clairvoyant": None,
            "policies": [self._policy(one) for one in self.played],
            "notes": list(self.notes),
        }
        if self.plan is not None:
            document["clairvoyant"] = {"gpu_hours": self.plan.gpu_hours, "slo_met_ratio": self.plan.slo_met_ratio}
        return document

    def _policy(self, one: Played) -> dict[str, Any]:
        numbers = one.score
        document = {"name": one.name, "parameters": dict(one.parameters), **numbers._asdict()}
        document["ratio_to_clairvoyant"] = self.ratio(numbers.gpu_hours)
        order = ("name", "parameters", "slo_met_ratio", "gpu_hours", "ratio_to_clairvoyant")
        document = {key: document[key] for key in order} | document
        return {key: _said(value) for key, value in document.items()}

    def to_section(self) -> TraceSection:
        share = self.profile.promise.share
        return TraceSection(
            load=self.load,
            server=_server(self.profile),
            promise=in_words(self.profile.promise),
            rows=[
                ResultRow(
                    one.name, one.label, one.course, one.score, one.score.slo_met_ratio >= share, self.ratio(hours)
                )
                for one in self.played
                for hours in (one.score.gpu_hours,)
            ],
            plan=None if self.plan is None else self.plan.ready.astype(float),
            bin_s=BIN_S,
            bounds=self.bounds(),
            notes=self.notes,
        )

    def bounds(self) -> str:
        """The two bounds, and how they were found, in a sentence or two."""
        fluid = f"{self.fluid_gpu_hours:.1f} GPU-hours are a bound nobody is under: full batches, and starting is free."
        if self.plan is None:
            return fluid
        kept = f"{100 * self.plan.slo_met_ratio:.2f} %"
        return (
            f"The plan of somebody who knew the load takes {self.plan.gpu_hours:.1f} GPU-hours and keeps {kept}, as "
            f"far as descent in the same simulator found one. {fluid}"
        )


def _server(profile: ServerProfile) -> str:
    gpus = f"{profile.gpus} GPU{'s' * (profile.gpus > 1)} a replica"
    return f"{profile.name}, {gpus}, which is ready {profile.start_s:g} s after it was ordered"


def in_words(promise: Slo) -> str:
    """Worked example: `99 % of requests: first token in 2 s + 0.17 s per 1,000 prompt tokens, the rest in 0.5 s + 60 ms
    per token`.
    """
    first = f"first token in {promise.first_s:g} s"
    if promise.first_per_prompt_s:
        first += f" + {1000 * promise.first_per_prompt_s:.2g} s per 1,000 prompt tokens"
    if not isfinite(promise.rest_s):
        return f"{100 * promise.share:g} % of requests: {first}"
    per_token = f"{1000 * promise.rest_per_token_s:g} ms per token"
    return f"{100 * promise.share:g} % of requests: {first}, the rest in {promise.rest_s:g} s + {per_token}"


def _promise(promise: Slo) -> dict[str, Any]:
    return {
        "share": promise.share,
        "first_token_s": promise.first_s,
        "first_token_s_per_prompt_token": promise.first_per_prompt_s,
        "rest_s": _said(promise.rest_s),
        "rest_s_per_token": promise.rest_per_token_s,
    }


def _said(value: Any) -> Any:
    """JSON has no NaN and no infinity: what is not known, or not promised, is null."""
    return None if isinstance(value, float) and not isfinite(value) else value

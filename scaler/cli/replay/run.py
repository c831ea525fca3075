"""Runs `tidegate replay`: parses the request, reads the traces, simulates the policies, and shows a progress bar.

Policies are simulated one after the other in this process; tuning, which simulates hundreds, uses all cores (`tune`).

Worked example: `replayed(ReplayRequest(loads=["diurnal:high=4"], policies=["tidegate", "static:replicas=3"]))` is one
TraceResult with two policies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from exporter.model import Credentials, WorkloadKey, without_user_info
from scaler.config.scalars import read_duration
from scaler.policy.constraints import PRICES
from scaler.replay import clairvoyant
from scaler.replay.decisions import DecisionsFile
from scaler.replay.gap_clairvoyant import gap_clairvoyant_gpu_hours
from scaler.replay.policies import BASELINES, FAMILIES, Setting, Value, grid, parse, without_each_part
from scaler.replay.report import Played, TraceResult
from scaler.replay.run import run
from scaler.replay.servers import ServerProfile, load_profile
from scaler.replay.traces import FORMATS, BadLoad, Recorded, load

from .history import HistoryRequest, from_prometheus
from .tune import tune

# Simulated by default: Tidegate, common recipes, and the autoscalers of common platforms.
USUAL = ("tidegate", "keda-waiting", "keda-gpu-util", "knative", "ray", "aibrix", "wva")

# The simulator holds twice as many pods (`run`'s slots): those that serve, and as many that terminate.
MOST_REPLICAS = 512

# Description of the present step, and its finished share, 0..1.
Progress = Callable[[str, float], None]


class BadReplayRequest(ValueError):  # noqa: N818 - named after the side at fault
    """The request is invalid; the message begins with the option."""


class HistoryOptions(NamedTuple):
    """url: of a server with Prometheus' API, with or without user and password. workload: NS/NAME.
    since: a duration before now. bearer_file: path of a token.
    """

    url: str
    workload: str | None
    since: str
    selector: str | None
    bearer_file: str | None = None


class ReplayRequest(NamedTuple):
    """The options of the command line."""

    loads: Sequence[str]
    form: str | None = None
    server: str = "A"
    policies: Sequence[str] = ()
    tune: bool = False
    clairvoyant: bool = False
    seed: int = 0
    ablation: bool = False
    decisions: str | None = None
    history: HistoryOptions | None = None
    gpu_hour: float = PRICES.gpu_hour


@dataclass(frozen=True, slots=True, eq=False)
class ReplayPlan:
    """tuned: also simulate the cheapest setting of the published grid, in hindsight. plan: also find the plan with the
    load known in advance. decisions: gets each decision of each policy.
    """

    loads: Sequence[Recorded]
    profile: ServerProfile
    policies: Sequence[Setting]
    tuned: bool = False
    plan: bool = False
    seed: int = 0
    decisions: DecisionsFile | None = None
    gpu_hour: float = PRICES.gpu_hour


def replayed(request: ReplayRequest, warn: Callable[[str], None] = lambda _: None) -> list[TraceResult]:
    """warn: called with each warning about the profile. Raises BadReplayRequest, and ConfigErrors for that file."""
    if request.form is not None and request.form not in FORMATS:
        raise BadReplayRequest(f"--format: must be one of {', '.join(FORMATS)}, got {request.form}")
    if not request.gpu_hour > 0.0:
        raise BadReplayRequest(f"--gpu-hour: must be above 0, got {request.gpu_hour:g}")
    if request.seed < 0:
        raise BadReplayRequest(f"--seed: must be 0 or more, got {request.seed}")
    settings = _settings(request)
    profile, warnings = load_profile(request.server)
    for warning in warnings:
        warn(str(warning))
    with ProgressBar(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("reading", total=1.0)

        def show(description: str, done: float) -> None:
            bar.update(task, description=description, completed=done)

        traces = [_read(text, request) for text in request.loads]
        if request.history is not None:
            traces.append(_fetch(request.history, request.seed, lambda done: show("fetching history", done)))
        if not traces:
            raise BadReplayRequest("TRACE: must be given, or --prometheus with --workload")
        with _decisions_file(request.decisions) as decisions:
            plan = ReplayPlan(
                traces,
                profile,
                settings,
                request.tune,
                request.clairvoyant,
                seed=request.seed,
                decisions=decisions,
                gpu_hour=request.gpu_hour,
            )
            return play(plan, show)


def policies() -> str:
    """A description of all policies: parameters, defaults, meanings, and the values that `--tune` tries."""
    lines = []
    for family in FAMILIES.values():
        lines.append(f"{family.name}: {family.about}")
        lines += [f"    {key}={_format(one.default)}  {one.about}" for key, one in family.parameters.items()]
        tuned = "; ".join(f"{key} {', '.join(map(_format, values))}" for key, values in family.grid.items())
        lines += [f"    --tune: {tuned}"] if tuned else []
    return "\n".join(lines)


def _format(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _settings(request: ReplayRequest) -> list[Setting]:
    if not request.ablation:
        return [_setting(text) for text in request.policies or USUAL]
    settings = [_setting(text) for text in request.policies or ("tidegate",)]
    if all(setting.family != "tidegate" for setting in settings):
        raise BadReplayRequest("--ablation: needs --policy tidegate, whose parts it switches off")
    return [
        one
        for setting in settings
        for one in (without_each_part(setting) if setting.family == "tidegate" else [setting])
    ]


@contextmanager
def _decisions_file(path: str | None) -> Iterator[DecisionsFile | None]:
    if path is None:
        yield None
    else:
        with _opened(path) as file:
            yield DecisionsFile(file)


def _opened(path: str) -> TextIO:
    try:
        return Path(path).open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise BadReplayRequest(f"--decisions: {path}: {error.strerror}") from error


def _setting(text: str) -> Setting:
    try:
        setting = parse(text)
    except ValueError as bad:
        raise BadReplayRequest(str(bad)) from bad
    for key, value in setting.values:
        if key in ("max", "replicas") and int(value) > MOST_REPLICAS:
            raise BadReplayRequest(f"--policy {text}: {key} must be at most {MOST_REPLICAS}, got {value}")
    return setting


def _read(text: str, request: ReplayRequest) -> Recorded:
    try:
        return load(text, request.form, request.seed)
    except BadLoad as bad:
        raise BadReplayRequest(str(bad)) from bad


def _fetch(history: HistoryOptions, seed: int, progress: Callable[[float], None]) -> Recorded:
    namespace, slash, name = (history.workload or "").partition("/")
    if not (namespace and slash and name):
        raise BadReplayRequest(f"--workload: must be NAMESPACE/NAME, got {history.workload or 'nothing'}")
    try:
        since_s = read_duration(history.since)
    except ValueError as bad:
        raise BadReplayRequest(f"--since: {bad}") from bad
    if history.bearer_file is not None and without_user_info(history.url) != history.url:
        raise BadReplayRequest("--bearer-file: must not be given if the URL of --prometheus has a user")
    now, workload, access = time.time(), WorkloadKey(namespace, name), Credentials(bearer_file=history.bearer_file)
    request = HistoryRequest(history.url, workload, now - since_s, now, selector=history.selector, access=access)
    try:
        return asyncio.run(from_prometheus(request, seed, progress))
    except BadLoad as bad:
        raise BadReplayRequest(f"--prometheus: {bad}") from bad


def play(plan: ReplayPlan, progress: Progress) -> list[TraceResult]:
    return [_simulate_all(recorded, plan, progress) for recorded in plan.loads]


def _simulate_all(recorded: Recorded, plan: ReplayPlan, progress: Progress) -> TraceResult:
    trace, profile = recorded.load, plan.profile

    def step(description: str) -> Callable[[float], None]:
        return lambda done: progress(f"{trace.name}: {description}", done)

    played = [_simulate(one, one.family, recorded, plan, step(one.name)) for one in plan.policies]
    if plan.tuned:
        tuning = step("tuning")
        best = tune(trace, profile, grid(BASELINES), seed=plan.seed, progress=lambda done, of: tuning(done / of))
        if best is not None:
            name = f"hindsight: {best.setting.family}"
            played.append(_simulate(best.setting, name, recorded, plan, step("the best in hindsight")))
    clairvoyant_plan = clairvoyant.find(trace, profile, step("the plan")) if plan.plan else None
    fluid_gpu_hours = clairvoyant.fluid_gpu_hours(trace, profile)
    gap_gpu_hours = gap_clairvoyant_gpu_hours(trace, profile)
    return TraceResult(
        trace, profile, played, clairvoyant_plan, fluid_gpu_hours, gap_gpu_hours, recorded.notes, plan.gpu_hour
    )


def _simulate(
    setting: Setting, name: str, recorded: Recorded, plan: ReplayPlan, progress: Callable[[float], None]
) -> Played:
    policy = name.removesuffix(setting.family) + setting.name  # `hindsight: ` stays
    record = None if plan.decisions is None else plan.decisions.recorder(recorded.load.name, policy)
    course = run(recorded.load, plan.profile, setting.baseline(), seed=plan.seed, progress=progress, record=record)
    defaults = FAMILIES[setting.family].parameters
    changed = {key: value for key, value in setting.values if value != defaults[key].default}
    return Played(name, changed, course)

"""`tidegate replay`, from its words to its verdicts: reads what is to be played, and shows how far it is.

What is wrong with a word is said with that word; which exit status that is, the command line knows.

Worked example: `replayed(Asked(loads=["diurnal:high=4"], policies=["tidegate", "static:replicas=3"], …))` is one
verdict with two policies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from exporter.model import Credentials, WorkloadKey, without_user_info
from scaler.config.scalars import read_duration
from scaler.replay.policies import FAMILIES, Setting, Value, parse
from scaler.replay.report import TraceResult
from scaler.replay.servers import load_profile
from scaler.replay.traces import FORMATS, BadLoad, Recorded, load

from .past import HistoryRequest, from_prometheus
from .play import ReplayPlan, play

# What is played where nobody says: Tidegate, the recipes people copy, and the planes that come with a platform.
USUAL = ("tidegate", "keda-waiting", "keda-gpu-util", "knative", "ray", "aibrix", "wva")

# The simulator has room for twice as many pods (`run`'s slots): those of a fleet, and as many on their way out.
MOST_REPLICAS = 512


class BadReplayRequest(ValueError):  # noqa: N818 - it names what is bad
    """What was asked for is not to be had; the message begins with the word that asks for it."""


class History(NamedTuple):
    """url: of a server with Prometheus' API, with a user and a password in it or without. workload: NS/NAME.
    since: a duration, back from now. bearer_file: with the token that is shown to the server.
    """

    url: str
    workload: str | None
    since: str
    selector: str | None
    bearer_file: str | None = None


class ReplayRequest(NamedTuple):
    """The command line's words."""

    loads: Sequence[str]
    form: str | None = None
    server: str = "A"
    policies: Sequence[str] = ()
    tune: bool = False
    clairvoyant: bool = False
    seed: int = 0
    history: History | None = None


def _unheard(_warning: str) -> None:
    """Nobody wants to know."""


def replayed(asked: ReplayRequest, warned: Callable[[str], None] = _unheard) -> list[TraceResult]:
    """warned: told what is odd about a server's file, a line each. Raises BadWish, and ConfigErrors for that file."""
    if asked.form is not None and asked.form not in FORMATS:
        raise BadReplayRequest(f"--format: must be one of {', '.join(FORMATS)}, got {asked.form}")
    if asked.seed < 0:
        raise BadReplayRequest(f"--seed: must be 0 or more, got {asked.seed}")
    settings = [_setting(words) for words in asked.policies or USUAL]
    profile, warnings = load_profile(asked.server)
    for warning in warnings:
        warned(str(warning))
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("reading", total=1.0)

        def told(what: str, done: float) -> None:
            bar.update(task, description=what, completed=done)

        recorded = [_recorded(words, asked) for words in asked.loads]
        if asked.history is not None:
            recorded.append(_past(asked.history, asked.seed, lambda done: told("asking Prometheus", done)))
        if not recorded:
            raise BadReplayRequest("LOAD: must be given, or --prometheus with --workload")
        wishes = ReplayPlan(recorded, profile, settings, tuned=asked.tune, plan=asked.clairvoyant, seed=asked.seed)
        return play(wishes, told)


def policies() -> str:
    """Every policy with its parameters, their defaults and meanings, and the values that `--tune` tries."""
    lines = []
    for family in FAMILIES.values():
        lines.append(f"{family.name}: {family.about}")
        lines += [f"    {key}={_plain(one.default)}  {one.about}" for key, one in family.parameters.items()]
        tried = "; ".join(f"{key} {', '.join(map(_plain, values))}" for key, values in family.grid.items())
        lines += [f"    --tune: {tried}"] if tried else []
    return "\n".join(lines)


def _plain(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _setting(words: str) -> Setting:
    try:
        setting = parse(words)
    except ValueError as bad:
        raise BadReplayRequest(str(bad)) from bad
    for key, value in setting.values:
        if key in ("max", "replicas") and int(value) > MOST_REPLICAS:
            raise BadReplayRequest(f"--policy {words}: {key} must be at most {MOST_REPLICAS}, got {value}")
    return setting


def _recorded(words: str, asked: ReplayRequest) -> Recorded:
    try:
        return load(words, asked.form, asked.seed)
    except BadLoad as bad:
        raise BadReplayRequest(str(bad)) from bad


def _past(history: History, seed: int, told: Callable[[float], None]) -> Recorded:
    namespace, slash, name = (history.workload or "").partition("/")
    if not (namespace and slash and name):
        raise BadReplayRequest(f"--workload: must be NAMESPACE/NAME, got {history.workload or 'nothing'}")
    try:
        since_s = read_duration(history.since)
    except ValueError as bad:
        raise BadReplayRequest(f"--since: {bad}") from bad
    if history.bearer_file is not None and without_user_info(history.url) != history.url:
        raise BadReplayRequest(
            "--bearer-file: there is a user in the URL of --prometheus already; only one can be let in"
        )
    now, workload, access = time.time(), WorkloadKey(namespace, name), Credentials(bearer_file=history.bearer_file)
    past = HistoryRequest(history.url, workload, now - since_s, now, selector=history.selector, access=access)
    try:
        return asyncio.run(from_prometheus(past, seed, told))
    except BadLoad as bad:
        raise BadReplayRequest(f"--prometheus: {bad}") from bad

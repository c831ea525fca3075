"""Replays published loads against the usual control planes, and writes the tables of QUALITY.md.

    python benchmarks/quality.py FOLDER [--minutes M] [--keep FILE] [--again ROW] [--ablation] [LOAD ...]

FOLDER has the loads under the names of `LOADS`; missing ones are left out. Only the text between the two marks in
QUALITY.md is written; the rest is written by people. A search (the plan, a grid) that takes longer than M minutes is
stopped, and the table says so. Each result is stored in FILE at once and not computed again: an interrupted run
continues. After a change of the code its rows must be measured again: `--again tidegate` does that for the rows with
this prefix. After a change of the simulator FILE must be deleted. `--ablation` writes nothing: it prints what each part
of the default policy is worth, the policy as it ships in the first row and without one part in each other row.

Worked example: with `AzureLLMInferenceTrace_conv.csv` in `loads`, `python benchmarks/quality.py loads azure-conv`
writes one chapter of some fifteen rows in a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import fill
from time import perf_counter
from typing import Any, NamedTuple

from report import Row, table
from run import machine

from scaler.cli.replay.tune import Trial, one_setting, tune
from scaler.replay.clairvoyant import find, fluid_gpu_hours
from scaler.replay.gap_clairvoyant import gap_clairvoyant_gpu_hours
from scaler.replay.policies import BASELINES, Setting, grid, parse, without_each_part
from scaler.replay.report import describe_slo
from scaler.replay.run import Score, run, score
from scaler.replay.servers import PROFILES, ServerProfile
from scaler.replay.traces import Recorded, load

PAGE = Path(__file__).with_name("QUALITY.md")
BEGIN, END = "<!-- written by quality.py -->\n", "<!-- until here -->\n"
DEFAULTS = ("tidegate", "keda-waiting", "keda-gpu-util", "knative", "ray", "aibrix", "wva")
SHIPPED = "tidegate:max=64"
PLAN, NOTHING = "clairvoyant plan", "nothing"
SERVEGEN = "ServeGen/data"

# One result: the fields of a score or a plan, a setting's `name`; or under NOTHING why there is no number.
Result = dict[str, Any]


class PublishedLoad(NamedTuple):
    """A published load. paths: arguments of `tidegate replay` within FOLDER; the first with an existing file is
    used.
    """

    name: str
    server: str
    paths: tuple[str, ...]
    one_setting: bool  # whether it counts for the one setting for all loads


LOADS = (
    PublishedLoad("azure-conv", "B", ("AzureLLMInferenceTrace_conv.csv", "azure_conv_1h.npz"), one_setting=True),
    # Bursts of five seconds, which only standing replicas survive: with it the one setting would be static.
    PublishedLoad("azure-code", "A", ("AzureLLMInferenceTrace_code.csv", "azure_code_1h.npz"), one_setting=False),
    PublishedLoad("mooncake", "A", ("conversation_trace.jsonl", "mooncake_conv_1h.npz"), one_setting=True),
    PublishedLoad("reason", "A", (f"{SERVEGEN}/reason/deepseek-r1:clients=48+3+13+12+54+30", "sg_reason_1d.npz"), True),
    PublishedLoad(
        "surge", "A", (f"{SERVEGEN}/language/m-large:clients=61,from=6d,to=11d,share=1/8", "sg_surge_5d.npz"), True
    ),
    PublishedLoad("office", "A", (f"{SERVEGEN}/language/m-large:clients=51", "sg_office_14d.npz"), True),
    PublishedLoad("onoff", "A", (f"{SERVEGEN}/language/m-large:clients=30+128+107", "sg_onoff_14d.npz"), True),
)


class Case(NamedTuple):
    load_spec: PublishedLoad
    argument: str
    recorded: Recorded
    profile: ServerProfile


class Kept:
    """The results in a file; for stopped searches, after how many minutes."""

    def __init__(self, path: Path | None, minutes: float, again: Sequence[str] = ()) -> None:
        self._path, self._minutes = path, minutes
        found: dict[str, Result] = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self._found = {
            key: result for key, result in found.items() if not any(row_of(key).startswith(row) for row in again)
        }

    def get(self, key: str, make: Callable[[], Result]) -> Result:
        """The stored result of `make`, which is called if there is none."""
        if key not in self._found:
            print(key, file=sys.stderr, flush=True)
            begun = perf_counter()
            try:
                with at_most(self._minutes):
                    result = make()
            except TimeoutError:
                result = {NOTHING: f"not run to its end: {self._minutes:g} minutes"}
            self._found[key] = {**result, "took_s": perf_counter() - begun}
            if self._path is not None:
                self._path.write_text(json.dumps(self._found, indent=1))
        return self._found[key]


def row_of(key: str) -> str:
    """`tidegate` of the key `office: tidegate`."""
    return key.partition(": ")[2]


@contextmanager
def at_most(minutes: float) -> Iterator[None]:
    """Raises TimeoutError in the block after that many minutes; compiled code ends its run first."""

    def late(_signal: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def cases(folder: Path, names: Sequence[str], loads: Sequence[PublishedLoad] = LOADS) -> list[Case]:
    found = []
    for load_spec in loads:
        argument = next(
            (argument for argument in load_spec.paths if (folder / argument.partition(":")[0]).exists()), None
        )
        if argument is None or (names and load_spec.name not in names):
            continue
        found.append(Case(load_spec, argument, load(str(folder / argument)), PROFILES[load_spec.server]))
    return found


def played(case: Case, setting: Setting) -> Result:
    return score(run(case.recorded.load, case.profile, setting.baseline()))._asdict()


def plan(case: Case) -> Result:
    best = find(case.recorded.load, case.profile)
    return {"slo_met_ratio": best.slo_met_ratio, "gpu_hours": best.gpu_hours}


def tuned(case: Case, families: Sequence[str]) -> Result:
    return _best(tune(case.recorded.load, case.profile, grid(families)))


def for_all(several: Sequence[Case]) -> Result:
    return _best(one_setting([(case.recorded.load, case.profile) for case in several], grid(BASELINES)))


def _best(trial: Trial | None) -> Result:
    return {NOTHING: "none keeps it"} if trial is None else {"name": trial.setting.name, **trial.scores[0]._asdict()}


def everything(found: Sequence[Case], kept: Kept) -> Iterator[tuple[Case, str, Result]]:
    """(load, row's title, result), cheap ones first: an interrupted run has most of the table."""
    for policy in DEFAULTS:
        for case in found:
            yield case, policy, kept.get(f"{case.load_spec.name}: {policy}", partial(played, case, parse(policy)))
    for case in found:
        yield case, PLAN, kept.get(f"{case.load_spec.name}: {PLAN}", partial(plan, case))
    for title, families in (("tidegate, tuned on this load", ("tidegate",)), ("hindsight", BASELINES)):
        for case in found:
            result = kept.get(f"{case.load_spec.name}: {title}", partial(tuned, case, families))
            yield case, f"{title}: {result['name']}" if "name" in result else title, result
    for server in PROFILES:
        several = [case for case in found if case.load_spec.server == server and case.load_spec.one_setting]
        if len(several) < 2:
            continue
        names = ", ".join(case.load_spec.name for case in several)
        one = str(kept.get(f"one setting on {names}", partial(for_all, several)).get("name", ""))
        for case in found:
            if one and case.load_spec.server == server:
                result = kept.get(f"{case.load_spec.name}: one {one}", partial(played, case, parse(one)))
                yield case, f"one setting for {names}: {one}", result


def chapter(case: Case, rows: dict[str, Result]) -> str:
    loaded, profile = case.recorded.load, case.profile
    by_plan = rows[PLAN].get("gpu_hours")
    shown = [line(title, result, by_plan, profile.slo.share) for title, result in rows.items()]
    facts = (
        f"`{case.argument}`, server {profile.name}: {len(loaded.at):,} requests in "
        f"{loaded.span_s / 3600:.2f} h, {loaded.prompt.mean():,.0f} prompt and {loaded.output.mean():,.0f} output "
        f"tokens on average. SLO: {describe_slo(profile.slo)}. The fluid bound is "
        f"{fluid_gpu_hours(loaded, profile):.1f} GPU-hours, gap-clairvoyant are "
        f"{gap_clairvoyant_gpu_hours(loaded, profile):.1f}."
    )
    return f"### {case.load_spec.name}\n\n{fill(facts, 120, break_on_hyphens=False)}\n\n{table(shown)}\n"


def overview(found: Sequence[Case], rows: dict[str, dict[str, Result]]) -> str:
    """SLO met in % / GPU-hours, a row per load; empty if there is no number."""
    titles = [PLAN, *DEFAULTS, "tidegate, tuned", "hindsight", "one setting"]

    def short(case: Case, title: str) -> str | None:
        result = next((result for name, result in rows[case.load_spec.name].items() if is_of(name, title)), None)
        if result is None or NOTHING in result:
            return None
        return f"{100 * result['slo_met_ratio']:.1f} / {result['gpu_hours']:,.1f}"

    return table([{"load": case.load_spec.name, **{title: short(case, title) for title in titles}} for case in found])


def ablation(found: Sequence[Case], kept: Kept) -> list[Row]:
    """A row for each setting: loads with the SLO met, and SLO met in % / GPU-hours / flaps a day of each load."""
    rows = []
    for setting in without_each_part(parse(SHIPPED)):
        results = [kept.get(f"{case.load_spec.name}: {setting.name}", partial(played, case, setting)) for case in found]
        met = sum(
            result.get("slo_met_ratio", 0.0) >= case.profile.slo.share
            for case, result in zip(found, results, strict=True)
        )
        shown = {case.load_spec.name: in_short(result) for case, result in zip(found, results, strict=True)}
        rows.append({"without": dict(setting.values)["without"], "met": met, **shown})
    return rows


def in_short(result: Result) -> str:
    if NOTHING in result:
        return str(result[NOTHING])
    return f"{100 * result['slo_met_ratio']:.2f} / {result['gpu_hours']:,.1f} / {result['flaps_per_day']:.1f}"


def is_of(name: str, title: str) -> bool:
    return name == title or (title not in DEFAULTS and name.startswith(title))


def line(title: str, result: Result, by_plan: float | None, share: float) -> Row:
    if NOTHING in result:
        return {"policy": title, "SLO met, %": result[NOTHING]}
    kept = f"{100 * result['slo_met_ratio']:.2f}{'' if result['slo_met_ratio'] >= share else ', missed'}"
    shown: dict[str, Any] = {"policy": title, "SLO met, %": kept, "GPU-hours": result["gpu_hours"]}
    shown["of the plan"] = result["gpu_hours"] / by_plan if by_plan else None
    if set(Score._fields) <= result.keys():
        shown |= {"TTFT p99, s": result["ttft_p99_s"], "changes": result["changes"]}
        shown |= {"flaps a day": result["flaps_per_day"], "cold starts": result["cold_starts"]}
    return shown


def write(text: str) -> None:
    page = PAGE.read_text() if PAGE.exists() else BEGIN + END
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + after)


def main() -> None:
    argument = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    argument.add_argument("folder", type=Path)
    argument.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(load_spec.name for load_spec in LOADS))
    argument.add_argument("--minutes", type=float, default=60.0)
    argument.add_argument("--keep", type=Path)
    argument.add_argument(
        "--again", action="append", default=[], metavar="ROW", help="measure rows that begin so again"
    )
    argument.add_argument("--ablation", action="store_true", help="print what each part of the policy is worth")
    options = argument.parse_args()
    kept = Kept(options.keep, options.minutes, options.again)
    found = cases(options.folder, options.loads)
    if options.ablation:
        print(table(ablation(found, kept)))
        return
    rows: dict[str, dict[str, Result]] = {case.load_spec.name: {PLAN: {NOTHING: ""}} for case in found}
    for case, title, result in everything(found, kept):
        rows[case.load_spec.name][title] = result
    command = f"python benchmarks/quality.py FOLDER --minutes {options.minutes:g}"
    chapters = [chapter(case, rows[case.load_spec.name]) for case in found]
    write("\n".join([f"`{command}`\n\n{machine()}\n", f"{overview(found, rows)}\n", *chapters]))


if __name__ == "__main__":
    main()

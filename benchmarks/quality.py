"""Replay published loads against the control planes people use, and write the tables of QUALITY.md.

    python benchmarks/quality.py FOLDER [--minutes M] [--keep FILE] [--again ROW] [LOAD ...]

FOLDER has the loads under the names of `LOADS`; those that are not there are left out. Only what stands between the
two marks in QUALITY.md is written, the words around it are people's. A search (the plan, a grid) that takes longer
than M minutes is given up and the table says so. What has been found is kept in FILE at once, and not looked for
again: a broken run goes on where it stopped. What the code has changed since must be measured again: `--again tidegate`
does that for the rows that begin so, and FILE must go when the simulator has changed.

Worked example: with `AzureLLMInferenceTrace_conv.csv` in `loads`, `python benchmarks/quality.py loads azure-conv` makes
one chapter of some fifteen rows in a quarter of an hour.
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
from scaler.replay.policies import BASELINES, Setting, grid, parse
from scaler.replay.report import describe_slo
from scaler.replay.run import Score, run, score
from scaler.replay.servers import PROFILES, ServerProfile
from scaler.replay.traces import Recorded, load

PAGE = Path(__file__).with_name("QUALITY.md")
BEGIN, END = "<!-- written by quality.py -->\n", "<!-- until here -->\n"
DEFAULTS = ("tidegate", "keda-waiting", "keda-gpu-util", "knative", "ray", "aibrix", "wva")
PLAN, NOTHING = "clairvoyant plan", "nothing"
SERVEGEN = "ServeGen/data"

# What one thing came to: a score's fields, a plan's, a setting's `name`; or under NOTHING why there is no number.
Said = dict[str, Any]


class Known(NamedTuple):
    """A published load. places: words for `tidegate replay` within FOLDER; the first whose file is there is taken."""

    name: str
    server: str
    places: tuple[str, ...]
    one_setting: bool  # is it among those that the one setting for all must hold?


LOADS = (
    Known("azure-conv", "B", ("AzureLLMInferenceTrace_conv.csv", "azure_conv_1h.npz"), one_setting=True),
    # Bursts of five seconds, which nothing but standing replicas survives: with it the one setting would be static.
    Known("azure-code", "A", ("AzureLLMInferenceTrace_code.csv", "azure_code_1h.npz"), one_setting=False),
    Known("mooncake", "A", ("conversation_trace.jsonl", "mooncake_conv_1h.npz"), one_setting=True),
    Known("reason", "A", (f"{SERVEGEN}/reason/deepseek-r1:clients=48+3+13+12+54+30", "sg_reason_1d.npz"), True),
    Known("surge", "A", (f"{SERVEGEN}/language/m-large:clients=61,from=6d,to=11d,share=1/8", "sg_surge_5d.npz"), True),
    Known("office", "A", (f"{SERVEGEN}/language/m-large:clients=51", "sg_office_14d.npz"), True),
    Known("onoff", "A", (f"{SERVEGEN}/language/m-large:clients=30+128+107", "sg_onoff_14d.npz"), True),
)


class Case(NamedTuple):
    known: Known
    words: str
    recorded: Recorded
    profile: ServerProfile


class Kept:
    """What has been found, in a file; and of what was given up, after how many minutes."""

    def __init__(self, path: Path | None, minutes: float, again: Sequence[str] = ()) -> None:
        self._path, self._minutes = path, minutes
        found: dict[str, Said] = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self._found = {
            key: said for key, said in found.items() if not any(row_of(key).startswith(row) for row in again)
        }

    def get(self, key: str, make: Callable[[], Said]) -> Said:
        """What `make` answers, or answered once."""
        if key not in self._found:
            print(key, file=sys.stderr, flush=True)
            begun = perf_counter()
            try:
                with at_most(self._minutes):
                    said = make()
            except TimeoutError:
                said = {NOTHING: f"not run to its end: {self._minutes:g} minutes"}
            self._found[key] = {**said, "took_s": perf_counter() - begun}
            if self._path is not None:
                self._path.write_text(json.dumps(self._found, indent=1))
        return self._found[key]


def row_of(key: str) -> str:
    """`tidegate` of the key `office: tidegate`."""
    return key.partition(": ")[2]


@contextmanager
def at_most(minutes: float) -> Iterator[None]:
    """Raises TimeoutError out of the block after so many minutes; compiled code ends its run first."""

    def late(_signal: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def cases(folder: Path, names: Sequence[str]) -> list[Case]:
    found = []
    for known in LOADS:
        words = next((words for words in known.places if (folder / words.partition(":")[0]).exists()), None)
        if words is None or (names and known.name not in names):
            continue
        found.append(Case(known, words, load(str(folder / words)), PROFILES[known.server]))
    return found


def played(case: Case, setting: Setting) -> Said:
    return score(run(case.recorded.load, case.profile, setting.baseline()))._asdict()


def plan(case: Case) -> Said:
    best = find(case.recorded.load, case.profile)
    return {"slo_met_ratio": best.slo_met_ratio, "gpu_hours": best.gpu_hours}


def tuned(case: Case, families: Sequence[str]) -> Said:
    return _best(tune(case.recorded.load, case.profile, grid(families)))


def for_all(several: Sequence[Case]) -> Said:
    return _best(one_setting([(case.recorded.load, case.profile) for case in several], grid(BASELINES)))


def _best(trial: Trial | None) -> Said:
    return {NOTHING: "none keeps it"} if trial is None else {"name": trial.setting.name, **trial.scores[0]._asdict()}


def everything(found: Sequence[Case], kept: Kept) -> Iterator[tuple[Case, str, Said]]:
    """(load, row's title, what it came to), cheap ones first: a run that is broken off has the most of the table."""
    for policy in DEFAULTS:
        for case in found:
            yield case, policy, kept.get(f"{case.known.name}: {policy}", partial(played, case, parse(policy)))
    for case in found:
        yield case, PLAN, kept.get(f"{case.known.name}: {PLAN}", partial(plan, case))
    for title, families in (("tidegate, tuned on this load", ("tidegate",)), ("hindsight", BASELINES)):
        for case in found:
            said = kept.get(f"{case.known.name}: {title}", partial(tuned, case, families))
            yield case, f"{title}: {said['name']}" if "name" in said else title, said
    for server in PROFILES:
        several = [case for case in found if case.known.server == server and case.known.one_setting]
        if len(several) < 2:
            continue
        names = ", ".join(case.known.name for case in several)
        one = str(kept.get(f"one setting on {names}", partial(for_all, several)).get("name", ""))
        for case in found:
            if one and case.known.server == server:
                said = kept.get(f"{case.known.name}: one {one}", partial(played, case, parse(one)))
                yield case, f"one setting for {names}: {one}", said


def chapter(case: Case, rows: dict[str, Said]) -> str:
    loaded, profile = case.recorded.load, case.profile
    by_plan = rows[PLAN].get("gpu_hours")
    shown = [line(title, said, by_plan, profile.slo.share) for title, said in rows.items()]
    facts = (
        f"`{case.words}`, server {profile.name}: {len(loaded.at):,} requests in "
        f"{loaded.span_s / 3600:.2f} h, {loaded.prompt.mean():,.0f} prompt and {loaded.output.mean():,.0f} output "
        f"tokens on average. SLO: {describe_slo(profile.slo)}. The fluid bound is "
        f"{fluid_gpu_hours(loaded, profile):.1f} GPU-hours."
    )
    return f"### {case.known.name}\n\n{fill(facts, 120, break_on_hyphens=False)}\n\n{table(shown)}\n"


def overview(found: Sequence[Case], rows: dict[str, dict[str, Said]]) -> str:
    """SLO met in % / GPU-hours, a row per load; empty where there is no number."""
    titles = [PLAN, *DEFAULTS, "tidegate, tuned", "hindsight", "one setting"]

    def short(case: Case, title: str) -> str | None:
        said = next((said for name, said in rows[case.known.name].items() if is_of(name, title)), None)
        if said is None or NOTHING in said:
            return None
        return f"{100 * said['slo_met_ratio']:.1f} / {said['gpu_hours']:,.1f}"

    return table([{"load": case.known.name, **{title: short(case, title) for title in titles}} for case in found])


def is_of(name: str, title: str) -> bool:
    return name == title or (title not in DEFAULTS and name.startswith(title))


def line(title: str, said: Said, by_plan: float | None, share: float) -> Row:
    if NOTHING in said:
        return {"policy": title, "SLO met, %": said[NOTHING]}
    kept = f"{100 * said['slo_met_ratio']:.2f}{'' if said['slo_met_ratio'] >= share else ', missed'}"
    shown: dict[str, Any] = {"policy": title, "SLO met, %": kept, "GPU-hours": said["gpu_hours"]}
    shown["of the plan"] = said["gpu_hours"] / by_plan if by_plan else None
    if set(Score._fields) <= said.keys():
        shown |= {"TTFT p99, s": said["ttft_p99_s"], "changes": said["changes"]}
        shown |= {"flaps a day": said["flaps_per_day"], "cold starts": said["cold_starts"]}
    return shown


def write(text: str) -> None:
    page = PAGE.read_text() if PAGE.exists() else BEGIN + END
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + after)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path)
    words.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(known.name for known in LOADS))
    words.add_argument("--minutes", type=float, default=60.0)
    words.add_argument("--keep", type=Path)
    words.add_argument("--again", action="append", default=[], metavar="ROW", help="measure rows that begin so again")
    asked = words.parse_args()
    kept = Kept(asked.keep, asked.minutes, asked.again)
    found = cases(asked.folder, asked.loads)
    rows: dict[str, dict[str, Said]] = {case.known.name: {PLAN: {NOTHING: ""}} for case in found}
    for case, title, said in everything(found, kept):
        rows[case.known.name][title] = said
    command = f"python benchmarks/quality.py FOLDER --minutes {asked.minutes:g}"
    chapters = [chapter(case, rows[case.known.name]) for case in found]
    write("\n".join([f"`{command}`\n\n{machine()}\n", f"{overview(found, rows)}\n", *chapters]))


if __name__ == "__main__":
    main()

"""Replays the default policy against other servers, starts and readings, and generated loads against all policies.

    python benchmarks/robustness.py variants|gauges|gauge-variants|generated [--loads FOLDER] [--keep FILE] [LOAD ...]

FOLDER has published loads (see QUALITY.md); missing ones are left out. `variants`: the server's times, the start-up
times or the readings differ from what the policy expects. `gauges`: engines without token counters, sized by the time
of a request and by 16 requests per replica; `gauge-variants`: the first with other servers, starts and loads.
`generated`: the loads that `tidegate replay` generates itself, every policy at its defaults. Prints a table of a
chapter of QUALITY.md that names this command. Each result is stored in FILE and not computed again.

Worked example: `python benchmarks/robustness.py variants --loads loads azure-conv` prints ten rows in ten seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quality import LOADS, SERVEGEN, SHIPPED, Case, Kept, PublishedLoad, cases, in_short, played
from report import Row, table

from exporter.model import Floats
from scaler.replay.columns import Trace
from scaler.replay.policies import BASELINES, parse
from scaler.replay.servers import PROFILES, ServerProfile
from scaler.replay.traces import load


def _drawn(name: str, server: str, folder: str, keys: str, file: str) -> PublishedLoad:
    """A load of a ServeGen folder; file: the arrays drawn from it."""
    return PublishedLoad(name, server, (f"{SERVEGEN}/{folder}:{keys}", f"sg_{file}.npz"), one_setting=False)


FURTHER = (
    _drawn("r1c", "A", "reason/deepseek-r1", "clients=15+11+18+26+33+23+38+1", "r1c_1d"),
    _drawn("large143", "B", "language/m-large", "clients=143,from=3d,to=5d,share=1/4", "large143_2d"),
    _drawn("large78", "B", "language/m-large", "clients=78,from=3d,to=6d,share=1/2", "large78_3d"),
    _drawn("large12", "B", "language/m-large", "clients=12", "large12_14d"),
    _drawn("mid101", "A", "language/m-mid", "clients=101,from=3d,to=5d,share=1/10", "mid101_2d"),
    _drawn("mid103", "A", "language/m-mid", "clients=103,to=7d,share=3/10", "mid103_7d"),
    _drawn("small39", "B", "language/m-small", "clients=39,from=3d,to=6d,share=1/2", "small39_3d"),
)
VARIANTS_ON = ("reason", "r1c", "large143", "surge", "azure-conv")
# Engines without token counters: by the time of a request (Little's law), and by requests per replica.
GAUGES, FORMER_GAUGES = "tidegate:max=64,scrape=15,without=token-counters", "tidegate:work=16,scrape=15,max=64"
GAUGE_VARIANTS_ON = ("azure-conv", "azure-code", "mooncake", "reason", "r1c", "large143", "surge")
# By argument of `tidegate replay`: the server.
GENERATED = {
    "diurnal": "A", "diurnal:high=4": "A", "onoff": "A", "flash": "A", "each": "A", "batch:output=60": "C",
}  # fmt: skip


def slower(profile: ServerProfile, times: float) -> ServerProfile:
    """The server with steps and prompts that take so many times as long; its SLO stays."""
    server = profile.server
    return replace(
        profile,
        server=server._replace(
            step=server.step * times,
            per_sequence=server.per_sequence * times,
            per_token=server.per_token * times,
            prompt_rate=server.prompt_rate / times,
        ),
    )


class Variant(NamedTuple):
    """policy: a setting. changed: the server that the load is played on."""

    policy: str = SHIPPED
    changed: Callable[[ServerProfile], ServerProfile] = lambda profile: profile


VARIANTS: Mapping[str, Variant] = {
    "as it is": Variant(),
    "server 25 % slower": Variant(changed=lambda profile: slower(profile, 1.25)),
    "server 25 % faster": Variant(changed=lambda profile: slower(profile, 0.75)),
    "starts twice as long": Variant(changed=lambda profile: replace(profile, start_s=2.0 * profile.start_s)),
    "starts 0.4 times as long": Variant(changed=lambda profile: replace(profile, start_s=0.4 * profile.start_s)),
    "start jitter 0.35": Variant(changed=lambda profile: replace(profile, start_sigma=0.35)),
    "a scrape each 15 s": Variant(f"{SHIPPED},scrape=15"),
    "readings 15 s late": Variant(f"{SHIPPED},late=15"),
    "a scrape each 15 s, 15 s late": Variant(f"{SHIPPED},scrape=15,late=15"),
    "5 % of readings lost": Variant(f"{SHIPPED},lost=0.05"),
}


def variants(found: Sequence[Case], kept: Kept) -> list[Row]:
    """A row for each variant, SLO met in % / GPU-hours / flaps a day of each load."""
    rows = []
    for name, (policy, changed) in VARIANTS.items():
        row: Row = {"": name}
        for case in found:
            other = case._replace(profile=changed(case.profile))
            result = kept.get(f"{case.load_spec.name}: {name}", partial(played, other, parse(policy)))
            row[case.load_spec.name] = in_short(result)
        rows.append(row)
    return rows


def _with_load(case: Case, at: Floats, chosen: slice) -> Case:
    before = case.recorded.load
    changed = Trace(before.name, at, before.prompt[chosen], before.output[chosen])
    return case._replace(recorded=case.recorded._replace(load=changed))


def halved(case: Case) -> Case:
    """Every second request."""
    return _with_load(case, case.recorded.load.at[::2], slice(None, None, 2))


def backwards(case: Case) -> Case:
    """The last request first."""
    at = case.recorded.load.at
    return _with_load(case, at[-1] - at[::-1], slice(None, None, -1))


GAUGE_VARIANTS: Mapping[str, Callable[[Case], Case]] = {
    "as it is": lambda case: case,
    "server 25 % slower": lambda case: case._replace(profile=slower(case.profile, 1.25)),
    "server 25 % faster": lambda case: case._replace(profile=slower(case.profile, 0.75)),
    "starts twice as long": lambda case: case._replace(
        profile=replace(case.profile, start_s=2.0 * case.profile.start_s)
    ),
    "half of the requests": halved,
    "backwards": backwards,
}


def gauge_variants(found: Sequence[Case], kept: Kept) -> list[Row]:
    """A row for each variant of engines without token counters."""
    rows = []
    for name, changed in GAUGE_VARIANTS.items():
        row: Row = {"": name}
        for case in found:
            key = f"{case.load_spec.name}: {GAUGES}, {name}"
            row[case.load_spec.name] = in_short(kept.get(key, partial(played, changed(case), parse(GAUGES))))
        rows.append(row)
    return rows


def gauges(found: Sequence[Case], kept: Kept) -> list[Row]:
    """A row for each load: gauges alone, as they are and 15 s late."""
    return [
        {"load": case.load_spec.name}
        | {
            policy: in_short(kept.get(f"{case.load_spec.name}: {policy}", partial(played, case, parse(policy))))
            for policy in (FORMER_GAUGES, GAUGES, f"{GAUGES},late=15")
        }
        for case in found
    ]


def generated(names: Sequence[str], kept: Kept) -> list[Row]:
    """A row for each policy; a fixed count is none that scales."""
    found = [
        Case(PublishedLoad(name, server, (name,), one_setting=False), name, load(name), PROFILES[server])
        for name, server in GENERATED.items()
        if not names or name in names
    ]
    return [
        {"policy": policy}
        | {
            case.argument: in_short(kept.get(f"{case.argument}: {policy}", partial(played, case, parse(policy))))
            for case in found
        }
        for policy in ("tidegate", *BASELINES)
        if policy != "static"
    ]


def main() -> None:
    argument = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    argument.add_argument("table", choices=("variants", "gauges", "gauge-variants", "generated"))
    argument.add_argument("names", nargs="*", metavar="LOAD")
    argument.add_argument("--loads", type=Path, default=Path("loads"), metavar="FOLDER")
    argument.add_argument("--keep", type=Path)
    options = argument.parse_intermixed_args()
    kept, names = Kept(options.keep, 60.0), options.names
    if options.table == "generated":
        print(table(generated(names, kept)))
    elif options.table == "gauges":
        print(table(gauges(cases(options.loads, names, (*LOADS, *FURTHER)), kept)))
    elif options.table == "gauge-variants":
        found = cases(options.loads, names or GAUGE_VARIANTS_ON, (*LOADS, *FURTHER))
        print(table(gauge_variants(found, kept)))
    else:
        names = names or VARIANTS_ON
        by_name = {case.load_spec.name: case for case in cases(options.loads, names, (*LOADS, *FURTHER))}
        print(table(variants([by_name[name] for name in names if name in by_name], kept)))


if __name__ == "__main__":
    main()

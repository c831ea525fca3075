"""The command line. Each command imports what it needs when it runs, so that `--help` is quick.

Exit status: 0 fine, 1 problems found, 2 wrong usage, 78 bad configuration (EX_CONFIG of sysexits.h).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from .check import check
from .doctor.command import doctor
from .output import EX_PROBLEMS, OUTPUT, SERVER, print_document
from .top.command import top

if TYPE_CHECKING:
    from scaler.config import ConfigErrors


EX_CONFIG = 78

ASK_S = 10.0  # a running daemon answers from memory


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(None, "-V", "--version", package_name="tidegate", message="tidegate %(version)s")
def main() -> None:
    """Decide how many GPU replicas a workload needs, to zero and back, and tell KEDA or the HPA.

    Start with `tidegate demo`: the whole loop on this machine, no GPU and no cluster needed.
    """


@main.command(short_help="Run the daemon.")
@click.option("-c", "--config", "file", required=True, type=click.Path(), help="Configuration file (YAML).")
def run(file: str) -> None:
    """Run the daemon: scrape, decide, answer KEDA.

    SIGHUP reads the configuration again; a bad one is refused and the old one stays. SIGTERM drains.
    """
    import asyncio

    from exporter.clock import WallClock
    from exporter.event_loop import run as run_loop
    from exporter.kubernetes.protocol import CannotConnect
    from scaler.config import ConfigErrors, load, parse
    from scaler.config import read as text_of
    from scaler.config.loader import FileWatch
    from scaler.logs import configure, say_warnings

    try:
        config, warnings = parse(text_of(file), file)
    except ConfigErrors as errors:
        raise _refusal(errors) from None
    configure(config.log.format, config.log.level)
    say_warnings(warnings)
    from scaler.daemon import Daemon
    from scaler.tls import BadTlsFiles

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        daemon = Daemon(config, WallClock(), reload=lambda: load(file), changed=FileWatch(Path(file)).changed)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, daemon.ask_reload)
        await daemon.run(stop)

    try:
        run_loop(serve())
    except BadTlsFiles as error:
        click.echo(f"{file}: {error}", err=True)
        sys.exit(EX_CONFIG)
    except CannotConnect as error:
        click.echo(f"{file}: kubernetes: {error}", err=True)
        sys.exit(EX_CONFIG)
    except OSError as error:
        raise click.ClickException(str(error)) from error


@main.command(short_help="Collect and expose only: a sidecar, or one per node.")
@click.option("-c", "--config", "file", required=True, type=click.Path(), help="Configuration file (YAML).")
def export(file: str) -> None:
    """Collect and expose only: this pod's queue, this pod's or node's GPUs, as one small page on :9410/metrics.

    Nothing is decided here: the daemon, or any Prometheus, reads the page. SIGTERM drains; a new configuration takes a
    new start.
    """
    from .agent.lean import stay_small

    stay_small()
    import asyncio

    from .agent.settings import UnusableConfig, read_apart

    try:
        settings = read_apart(file)
    except UnusableConfig as refused:
        click.echo("\n".join(refused.lines), err=True)
        sys.exit(EX_CONFIG)
    from exporter.clock import WallClock
    from exporter.event_loop import run as run_loop
    from scaler.logs import configure, say_warnings

    from .agent.serve import export as serve_page

    configure(settings.log_format, settings.log_level)
    say_warnings(settings.warnings)

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve_page(settings, WallClock(), stop)

    try:
        run_loop(serve())
    except OSError as error:
        raise click.ClickException(str(error)) from error


main.add_command(check)
main.add_command(top)
main.add_command(doctor)


@main.command(short_help="Print the JSON Schema of the configuration.")
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors and CI."""
    from scaler.config.schema import json_schema

    print_document(json_schema(), "json")


@main.command(short_help="Show what Tidegate sees in one page.")
@click.argument("source", metavar="URL|FILE")
@click.option("--kind", default="auto", show_default=True, help="What kind of page it is; `auto` looks.")
@click.option(
    "--timeout",
    default=3.0,
    type=click.FloatRange(min=0, min_open=True),
    show_default=True,
    help="Seconds for the whole page of a URL, name look-up included; the daemon's scrape.timeout has this default.",
)
@OUTPUT
def read(source: str, kind: str, timeout: float, output: str) -> None:
    """Show what Tidegate sees in one page: queues, GPUs, whose they are, what was dropped and why.

    URL is an http(s) address of a /metrics page; FILE a saved one, or - for standard input. A page with neither a
    queue nor a GPU on it is a problem: exit status 1.

    A URL is fetched as the daemon fetches it: one time limit, scrape.body_limit's default, no redirects, no proxy.
    """
    import time

    from exporter.agent.view import describe
    from exporter.catalog import KINDS, NotHeard, Reader, UnknownKind
    from exporter.scrape.request import foreign
    from exporter.textformat import parse

    from .client import Unanswered, page

    if kind != "auto" and kind not in KINDS:
        raise click.BadParameter(f"must be auto or one of {', '.join(sorted(KINDS))}, got {kind}", param_hint="--kind")
    try:
        body = page(source, timeout)
    except Unanswered as error:
        click.echo(f"Error: {error}", err=True)
        _exit_now(EX_PROBLEMS)
    parsed = parse(body)
    instead = None if len(parsed.values) else foreign(body)
    if instead is not None:
        click.echo(f"Error: {source}: this is {instead}", err=True)
    try:
        samples = Reader(kind).read(parsed, time.time())
    except (NotHeard, UnknownKind) as error:
        raise click.ClickException(f"{source}: {error}") from error
    document = describe(samples, parsed)
    if output == "table":
        from .read import read_tables

        read_tables(document, source)
    else:
        print_document(document, output)
    sys.exit(0 if document["queues"] or document["gpus"] else EX_PROBLEMS)


@main.command(short_help="Watch the whole loop on this machine.")
@click.option("--duration", default=75.0, show_default=True, help="Seconds of the wall; 0 runs until Ctrl-C.")
@click.option("--speed", default=20.0, show_default=True, help="Simulated seconds per second.")
@click.option("--seed", default=7, show_default=True, help="The same seed gives the same load.")
@click.option("--port", default=0, show_default="any free", help="HTTP port of the daemon: the live page, /metrics.")
@click.option("-o", "--output", type=click.Choice(["live", "json"]), default="live", show_default=True, help="Format.")
def demo(duration: float, speed: float, seed: int, port: int, output: str) -> None:
    """Watch the whole loop on this machine: a simulated inference server and GPUs under a load that comes and goes,
    the real daemon, and a stand-in for KEDA and HPA that asks it over the real gRPC.
    """
    from scaler.net import AddressInUseError

    from .demo.run import DemoRequest, play

    if speed <= 0:
        raise click.BadParameter(f"must be above 0, got {speed:g}", param_hint="--speed")
    if duration < 0:
        raise click.BadParameter(f"must be at least 0, got {duration:g}", param_hint="--duration")
    try:
        problems = play(DemoRequest(duration_s=duration, speed=speed, seed=seed, port=port, as_json=output == "json"))
    except ExceptionGroup as group:
        taken = group.subgroup(AddressInUseError)
        if taken is None:
            raise
        raise click.ClickException(_first(taken)) from None
    for problem in problems:
        click.echo(f"demo: {problem}", err=True)
    sys.exit(EX_PROBLEMS if problems else 0)


@main.command(short_help="Play a recorded load against policies.")
@click.argument("loads", metavar="[LOAD]...", nargs=-1)
@click.option("--format", "form", help="Format of the loads; told by their content unless given.")
@click.option("--server", default="A", show_default=True, help="A, B, C, or a YAML file with your own server.")
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME[:K=V,...]", help="Once per policy; `list` lists them."
)
@click.option("--tune", is_flag=True, help="Also the best setting of the published grid, in hindsight.")
@click.option("--clairvoyant", is_flag=True, help="Also the plan of somebody who knew the load (minutes).")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same answer.")
@click.option("--prometheus", metavar="URL", help="Take the load from this server's history.")
@click.option("--workload", metavar="NS/NAME", help="Whose history.")
@click.option("--since", default="1d", show_default=True, help="How far back the history goes.")
@click.option("--selector", help="Label matchers of the workload's pages there; without it: its pods' names.")
@click.option(
    "--bearer-file", metavar="FILE", envvar="TIDEGATE_BEARER_FILE", show_envvar=True, help="The token for --prometheus."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option(
    "--html", type=click.Path(dir_okay=False, writable=True), help="Also write a report that needs no network."
)
def replay(
    loads: Sequence[str],
    form: str | None,
    server: str,
    policies: Sequence[str],
    tune: bool,
    clairvoyant: bool,
    seed: int,
    prometheus: str | None,
    workload: str | None,
    since: str,
    selector: str | None,
    bearer_file: str | None,
    output: str,
    html: str | None,
) -> None:
    """Play a recorded load against policies, in a simulated Deployment: promises kept, GPU-hours, restlessness.

    LOAD is a file (Azure LLM, BurstGPT, Mooncake, ServeGen, `t,input,output`, npz) or a shape such as
    `diurnal:high=4`. Tidegate is played with the policy and the kernels that the daemon runs.
    """
    from scaler.config import ConfigErrors

    from .replay.command import BadReplayRequest, History, ReplayRequest, replayed
    from .replay.command import policies as known_policies

    if "list" in policies:
        click.echo(known_policies())
        return

    if workload is not None and prometheus is None:
        raise click.UsageError("--workload: goes with --prometheus, whose history of it is meant")
    if html is not None and not Path(html).absolute().parent.is_dir():
        raise click.BadParameter(f"must be in a folder that exists, got {html}", param_hint="--html")
    history = None if prometheus is None else History(prometheus, workload, since, selector, bearer_file)
    asked = ReplayRequest(loads, form, server, policies, tune, clairvoyant, seed, history)
    try:
        verdicts = replayed(asked, lambda warning: click.echo(warning, err=True))
    except BadReplayRequest as bad:
        raise click.UsageError(str(bad)) from bad
    except ConfigErrors as errors:
        raise _refusal(errors) from None
    if html is not None:
        from scaler.replay.report import page

        Path(html).write_text(page([verdict.to_section() for verdict in verdicts]), encoding="utf-8")
    if output == "table":
        from .replay.tables import replay_tables

        replay_tables(verdicts)
    else:
        print_document([verdict.to_document() for verdict in verdicts], output)


@main.command(short_help="Where GPU-hours went, and what observing would have saved.")
@SERVER
@OUTPUT
def report(server: str, output: str) -> None:
    """Where GPU-hours went: serving, idle, loading, asleep. Of workloads that are only observed, what Tidegate would
    have saved, and how long requests waited while it would have had more replicas.
    """
    from .client import Unanswered, document
    from .report import report as made_of
    from .report import report_tables

    try:
        made = made_of(document(server, "/api/v1/accounts", ASK_S))
    except Unanswered as error:
        raise click.ClickException(str(error)) from None
    if output == "table":
        report_tables(made)
    else:
        print_document(made, output)


@main.command(short_help="Why this number of replicas.")
@click.argument("workload", metavar="NAMESPACE/NAME")
@click.option("--at", metavar="TIME", help="A moment of the past: 2026-11-22T10:00:00Z, POSIX seconds, or 10m (ago).")
@SERVER
@OUTPUT
def explain(workload: str, at: str | None, server: str, output: str) -> None:
    """Explain why a workload has its number of replicas, from its metrics to what KEDA and the HPA do."""
    import time

    from .client import Unanswered
    from .explain import BadExplainRequest, ExplainRequest, asked, explain_tables

    try:
        document = asked(ExplainRequest(workload, at, server, ASK_S), time.time())
    except (BadExplainRequest, Unanswered) as error:
        raise click.ClickException(str(error)) from None
    if output == "table":
        explain_tables(document)
    else:
        print_document(document, output)


@main.command(short_help="Print versions.")
@OUTPUT
def version(output: str) -> None:
    """Print the version of Tidegate and of what it runs on."""
    import platform
    from importlib.metadata import version as installed_version

    document = {"tidegate": installed_version("tidegate"), "python": platform.python_version()}
    document |= {name: installed_version(name) for name in ("aiohttp", "grpcio", "numba", "numpy", "pydantic")}
    if output == "table":
        click.echo("\n".join(f"{name:<9} {number}" for name, number in document.items()))
    else:
        print_document(document, output)


def _exit_now(status: int) -> NoReturn:
    """Ends the process. Python itself would first wait for threads, and a name look-up that hangs is one."""
    import os

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _first(group: ExceptionGroup[Exception]) -> str:
    """The words of the first error in it."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error)


def _refusal(errors: ConfigErrors) -> SystemExit:
    """Those lines and nothing else."""
    for problem in errors.problems:
        click.echo(str(problem), err=True)
    return SystemExit(EX_CONFIG)

"""Defines the commands of `tidegate`. Each command imports what it needs when it runs, so that `--help` is quick.

Exit status: 0 ok, 1 problems found, 2 wrong usage, 78 bad configuration (EX_CONFIG of sysexits.h).

Worked example: `tidegate check scaledobject.yaml deployment.yaml` checks both together and exits 1 if there is an
error.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from scaler.config import ConfigErrors

EX_PROBLEMS, EX_USAGE, EX_CONFIG = 1, 2, 78
REQUEST_TIMEOUT_S = 10.0  # the daemon answers from memory


def server_url(context: click.Context, option: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    """A URL; plain HTTP if it has no scheme, as for curl. `localhost:8080/` becomes "http://localhost:8080"."""
    if value is None:
        return None
    scheme, separator, address = value.rpartition("://")
    if scheme not in ("", "http", "https") or not address.strip("/"):
        raise click.BadParameter(f"must be a URL such as http://localhost:8080, got {value!r}")
    return f"{scheme if separator else 'http'}://{address}".rstrip("/")


CONFIG = click.option("-c", "--config", "file", required=True, type=click.Path(), help="Configuration file (YAML).")
SERVER = click.option(
    "--server", default="http://localhost:8080", show_default=True, envvar="TIDEGATE_SERVER", show_envvar=True,
    callback=server_url, help="URL of a running daemon's HTTP port.",
)  # fmt: skip
OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True, help="Format."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(None, "-V", "--version", package_name="tidegate", message="tidegate %(version)s")
def main() -> None:
    """Compute how many GPU replicas a workload needs, down to zero, and report it to KEDA or the HPA.

    Start with `tidegate demo`: the whole control loop on this machine, without a GPU or a cluster.
    """
    # gRPC reads it when it is imported. Its own messages are not JSON, and a GOAWAY is none of the operator's business.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


@main.command(short_help="Run the daemon.")
@CONFIG
def run(file: str) -> None:
    """Run the daemon: scrape metrics, compute replicas, serve KEDA and the metrics API.

    SIGHUP reloads the configuration; if the new one is invalid, the old one stays. SIGTERM drains.
    """
    import asyncio
    import gc

    gc.disable()  # two full collections in the middle of the imports would take 60 ms
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
        raise _bad_config(errors) from None
    configure(config.log.format, config.log.level)
    say_warnings(warnings)
    from scaler.daemon import Daemon, MissingExtra
    from scaler.tls import BadTlsFiles

    gc.enable()

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        daemon = Daemon(config, WallClock(), reload=lambda: load(file), changed=FileWatch(Path(file)).changed)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, daemon.ask_reload)
        await daemon.run(stop)

    try:
        run_loop(serve())
    except (BadTlsFiles, MissingExtra) as error:
        click.echo(f"{file}: {error}", err=True)
        sys.exit(EX_CONFIG)
    except CannotConnect as error:
        click.echo(f"{file}: kubernetes: {error}", err=True)
        sys.exit(EX_CONFIG)
    except OSError as error:
        raise click.ClickException(str(error)) from error


@main.command(short_help="Only collect and expose metrics, as a sidecar or DaemonSet.")
@CONFIG
def export(file: str) -> None:
    """Only collect and expose metrics: this pod's queue, and this pod's or node's GPUs, as one small page on
    :9410/metrics, in less than 60 MB of memory.

    The daemon or any Prometheus scrapes the page. SIGTERM drains. A new configuration needs a restart.
    """
    # structlog formats tracebacks with rich if it can import it, which takes 3.4 MB. None makes the import fail.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    import asyncio

    from .agent.settings import UnusableConfig, read_in_child

    try:
        settings = read_in_child(file)
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


@main.command(short_help="Check configuration files, manifests, or a live namespace.")
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True))
@click.option("--namespace", "-n", help="Check the objects of this namespace instead of files.")
@click.option("--all-namespaces", "-A", "everywhere", is_flag=True, help="Check the whole cluster.")
@click.option("--kubeconfig", type=click.Path(), help="Path of a kubeconfig. Default: as kubectl.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--ignore", "ignored", multiple=True, metavar="ID", help="A rule to ignore; may be repeated.")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option("--rules", "listing", is_flag=True, help="List the rules.")
@click.option("--explain", "rule", metavar="ID", help="Print the page of a rule: what it finds, why, fix, example.")
@OUTPUT
def check(
    files: Sequence[str],
    namespace: str | None,
    everywhere: bool,
    kubeconfig: str | None,
    context: str | None,
    ignored: Sequence[str],
    strict: bool,
    listing: bool,
    rule: str | None,
    output: str,
) -> None:
    """Check configuration files, and manifests before they are applied: scalers, scale targets and monitors together.
    `-` is standard input: `helm template . | tidegate check -`.

    Reports all problems as `file:line:column: severity RULE: key: what`; a line without a rule is an error that
    Tidegate itself would report. For each workload it also prints what wakes it from zero, and its brakes and
    schedules.

    Manifests are checked against the configuration files among FILES, else against the default configuration. To
    silence a rule on an object, annotate it: `tidegate.dev/check-ignore: "ID because REASON"`.
    """
    from scaler.lint import report

    if listing or rule is not None:
        click.echo(report.explained(rule))
        return
    outcome = report.checked(report.CheckRequest(files, namespace, everywhere, kubeconfig, context, ignored))
    failed = outcome.fails(strict=strict)
    if output == "table":
        click.echo("\n".join(outcome.lines(failed)))
    else:
        _print_document([problem.to_document() for problem in outcome.report.problems], output)
    sys.exit(EX_PROBLEMS if failed else 0)


@main.command(short_help="Watch the workloads of a running daemon in the terminal.")
@SERVER
@click.option(
    "--interval", default=2.0, type=click.FloatRange(min=0.1), show_default=True, help="Seconds between two updates."
)
@click.option("--once", is_flag=True, help="Print all rows and exit; also if the output is no terminal.")
def top(server: str, interval: float, once: bool) -> None:
    """Watch the workloads of a running daemon in the terminal, problems first: the rows of its live page. Press ? for
    the keys, q to quit.
    """
    from .client import Unanswered
    from .top.watch import print_once, watch

    try:
        if once:
            print_once(server)
        else:
            watch(server, interval)
    except Unanswered as error:
        raise click.ClickException(str(error)) from None


@main.command(short_help="Check everything that Tidegate needs.")
@click.option("-c", "--config", "file", type=click.Path(), help="Configuration file (YAML).")
@click.option(
    "--server", envvar="TIDEGATE_SERVER", show_envvar=True, callback=server_url,
    help="URL of a running daemon. Default: one on this machine, if any.",
)  # fmt: skip
@OUTPUT
def doctor(file: str | None, server: str | None, output: str) -> None:
    """Check everything that Tidegate needs, and print a remedy for each failure: Python and the cache of compiled
    kernels, ports, the configuration, a running daemon, permissions in Kubernetes, KEDA, all targets and clocks.

    In a cluster: `kubectl exec deploy/tidegate -- tidegate doctor -c /etc/tidegate/config/config.yaml`. It changes
    nothing. Exit status 1 if a check fails.
    """
    import asyncio
    import os

    from exporter.clock import WallClock

    from .doctor.run import examine

    checks = asyncio.run(examine(file, server, os.environ, WallClock()))
    if output == "table":
        from .doctor.check import print_checks

        print_checks(checks)
    else:
        _print_document([check.to_document() for check in checks], output)
    sys.exit(EX_PROBLEMS if any(check.status == "fail" for check in checks) else 0)


@main.command(short_help="Print the JSON Schema of the configuration.")
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors and CI."""
    from scaler.config.schema import json_schema

    _print_document(json_schema(), "json")


@main.command(short_help="Print what Tidegate reads from a metrics page.")
@click.argument("source", metavar="URL|FILE")
@click.option("--kind", default="auto", show_default=True, help="Kind of the page; `auto` detects it.")
@click.option(
    "--timeout",
    default=3.0,
    type=click.FloatRange(min=0, min_open=True),
    show_default=True,
    help="Time limit for a URL in seconds, name look-up included. The default is that of scrape.timeout.",
)
@OUTPUT
def read(source: str, kind: str, timeout: float, output: str) -> None:
    """Print what Tidegate reads from a metrics page: queues, GPUs, their pods, and which lines it drops and why.

    URL is the http(s) address of a /metrics page; FILE is a saved page, or - for standard input. Exit status 1 if the
    page has neither a queue nor a GPU.

    A URL is fetched as the daemon does: one time limit, the default of scrape.body_limit, no redirects, no proxy.
    """
    import time

    from exporter.agent.view import describe
    from exporter.catalog import KINDS, Reader, SourcesDown, UnknownKind
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
    except (SourcesDown, UnknownKind) as error:
        raise click.ClickException(f"{source}: {error}") from error
    document = describe(samples, parsed)
    if output == "table":
        from .read import read_tables

        read_tables(document, source)
    else:
        _print_document(document, output)
    sys.exit(0 if document["queues"] or document["gpus"] else EX_PROBLEMS)


@main.command(short_help="Watch the whole control loop on this machine.")
@click.option("--duration", type=float, help="Seconds of real time; 0 runs until Ctrl-C. Default: 60; llama.cpp: 75.")
@click.option("--speed", type=float, help="Simulated seconds per second. Default: 60.")
@click.option(
    "--engine", type=click.Choice(["simulated", "llama.cpp"]), default="simulated", show_default=True,
    help="What the replicas are; llama.cpp needs `pip install 'tidegate[engines]'`.",
)  # fmt: skip
@click.option("--seed", default=7, show_default=True, help="Seed of the simulated requests.")
@click.option("--port", type=int, help="HTTP port of the daemon. Default: 8080 or the next free one; 0: any free one.")
@click.option("-o", "--output", type=click.Choice(["live", "json"]), default="live", show_default=True, help="Format.")
def demo(duration: float | None, speed: float | None, engine: str, seed: int, port: int | None, output: str) -> None:
    """Watch the whole control loop on this machine: simulated inference servers and GPUs under a varying load, the real
    daemon, and a stand-in for KEDA and the HPA that calls it over gRPC.

    With `--engine llama.cpp` the replicas are real servers with a random model, two at most, in real time.
    """
    from .demo.command import DemoOptions, played

    problems = played(DemoOptions(duration, speed, engine, seed, port, output == "json", _program()))
    for problem in problems:
        click.echo(f"demo: {problem}", err=True)
    sys.exit(EX_PROBLEMS if problems else 0)


@main.command(short_help="Simulate policies on a recorded load.")
@click.argument("traces", metavar="[TRACE]...", nargs=-1)
@click.option("--format", "trace_format", help="Format of the traces. Default: detected.")
@click.option("--server", default="A", show_default=True, help="Server profile: A, B, C, or a YAML file.")
@click.option("--policy", "policies", multiple=True, metavar="NAME[:K=V,...]", help="Repeatable; `list` lists all.")
@click.option("--tune", is_flag=True, help="Also find the best setting of the published grid, in hindsight.")
@click.option("--ablation", is_flag=True, help="Also simulate tidegate without each of its parts, one at a time.")
@click.option("--clairvoyant", is_flag=True, help="Also find the best plan with the load known in advance (minutes).")
@click.option("--gpu-hour", default=2.5, show_default=True, help="Money for a GPU-hour, in any currency.")
@click.option("--seed", default=0, show_default=True, help="Seed of the simulation.")
@click.option("--prometheus", metavar="URL", help="Take the load from this server's history.")
@click.option("--workload", metavar="NS/NAME", help="Workload of the history.")
@click.option("--since", default="1d", show_default=True, help="Length of the history.")
@click.option("--selector", help="Label matchers of the workload's series. Default: by the names of its pods.")
@click.option(
    "--bearer-file", metavar="FILE", envvar="TIDEGATE_BEARER_FILE", show_envvar=True, help="Token for --prometheus."
)
@OUTPUT
@click.option("--html", type=click.Path(dir_okay=False, writable=True), help="Also write a self-contained report.")
@click.option("--decisions", type=click.Path(dir_okay=False), help="Also write each decision, as CSV.")
@click.option("--calibrate", is_flag=True, help="Print an engine's profile. TRACE: URL of its metrics, or saved ones.")
def replay(
    traces: Sequence[str],
    trace_format: str | None,
    server: str,
    policies: Sequence[str],
    tune: bool,
    ablation: bool,
    clairvoyant: bool,
    gpu_hour: float,
    seed: int,
    prometheus: str | None,
    workload: str | None,
    since: str,
    selector: str | None,
    bearer_file: str | None,
    output: str,
    html: str | None,
    decisions: str | None,
    calibrate: bool,
) -> None:
    """Simulate policies on a recorded load, in a simulated Deployment: share of requests within the SLO, GPU-hours,
    changes of the replica count.

    TRACE is a file (Azure LLM, BurstGPT, Mooncake, ServeGen, `t,input,output`, npz) or a generated shape such as
    `diurnal:high=4`. Tidegate is simulated with the policy code of the daemon.
    """
    from scaler.config import ConfigErrors

    if calibrate:
        from .replay.calibrate import print_profile

        print_profile(traces)
        return
    from .replay.run import BadReplayRequest, HistoryOptions, ReplayRequest, replayed
    from .replay.run import policies as policy_list

    if "list" in policies:
        click.echo(policy_list())
        return
    if workload is not None and prometheus is None:
        raise click.UsageError("--workload: needs --prometheus")
    if html is not None and not Path(html).absolute().parent.is_dir():
        raise click.BadParameter(f"must be in a folder that exists, got {html}", param_hint="--html")
    history = None if prometheus is None else HistoryOptions(prometheus, workload, since, selector, bearer_file)
    request = ReplayRequest(
        traces, trace_format, server, policies, tune, clairvoyant, seed, ablation, decisions, history, gpu_hour
    )
    try:
        results = replayed(request, lambda warning: click.echo(warning, err=True))
    except BadReplayRequest as bad:
        raise click.UsageError(str(bad)) from bad
    except ConfigErrors as errors:
        raise _bad_config(errors) from None
    if html is not None:
        from scaler.replay.report import page

        Path(html).write_text(page([result.to_section() for result in results]), encoding="utf-8")
    if output == "table":
        from .replay.tables import replay_tables

        replay_tables(results)
    else:
        _print_document([result.to_document() for result in results], output)


@main.command(short_help="Print GPU-hours, cost, usage profiles and what binds each workload.")
@click.argument("workloads", metavar="[NAMESPACE/NAME]...", nargs=-1)
@SERVER
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml", "csv"]), default="table", show_default=True,
    help="Format.",
)  # fmt: skip
@click.option("--prometheus", metavar="URL", help="Read this server's history, not a daemon.")
@click.option("--since", metavar="DURATION", help="Length of the history. Default: 30d.")
@click.option("--month", metavar="[2026-11]", is_flag=False, flag_value="", help="A calendar month in UTC.")
@click.option("--pages", metavar="FOLDER", help="Read recorded metrics: FOLDER/TARGET/POSIX-SECONDS.prom.")
@click.option(
    "--bearer-file", metavar="FILE", envvar="TIDEGATE_BEARER_FILE", show_envvar=True, help="Token for --prometheus."
)
@click.option("--html", type=click.Path(dir_okay=False, writable=True), help="Also write a self-contained statement.")
@click.option(
    "--model", metavar="FILE", help="The model's config.json: print its memory on each GPU. Alone it asks no server."
)
@click.option("--gpu", metavar="NAME", help="GPU that the named workloads run on: rank other GPUs, and MIG slices.")
@click.option("--gpus", metavar="FILE", help="More GPUs, as YAML.")
@click.option(
    "--speeds", metavar="FILE", help="CSV of measured speeds: workload, on (3g.20gb, or 14% with MPS), speed."
)
@click.option("--tensor-parallel", type=click.IntRange(1, 1024), default=1, show_default=True, help="GPUs per replica.")
@click.option("--kv-precision", metavar="NAME", help="Of the KV cache, as fp8. Default: the model's.")
@click.option("--max-model-len", type=click.IntRange(min=1), help="Tokens of a sequence. Default: the model's context.")
@click.option("--itl", metavar="DURATION", help="SLO of a GPU: time between two tokens.")
@click.option("--training-gpus", type=click.IntRange(1, 100_000), help="Also the memory of training on so many GPUs.")
def report(
    workloads: Sequence[str],
    server: str,
    output: str,
    prometheus: str | None,
    since: str | None,
    month: str | None,
    pages: str | None,
    bearer_file: str | None,
    html: str | None,
    itl: str | None,
    model: str | None,
    gpu: str | None,
    **more: Any,
) -> None:
    """Print GPU-hours by state (serving, idle, loading, asleep) and their cost; how each workload uses its GPUs, and
    what binds it. For workloads with `mode: observe`: what Tidegate would have saved.

    With --model and --gpu: which GPU, which MIG slice and how many replicas would do, and at what cost.
    """
    from .client import Unanswered
    from .report.advice import AdviceRequest
    from .report.advice import sections as advise
    from .report.options import ReportOptions, month_of
    from .report.run import BadReportRequest, span
    from .report.source import ReportRequest, collect
    from .report.tables import progress_bar, report_tables, section_tables

    ReportOptions(workloads, prometheus, since, month, pages, gpu, model).check()
    itl_s = None if itl is None else _duration(itl, "--itl")
    request = AdviceRequest(model, gpu, itl_s=itl_s, **more)
    try:
        if model is not None and not workloads:
            _print_memory(request, output, html)
            return
        with progress_bar() as progress:
            source = server, prometheus, _duration(since or "30d", "--since"), bearer_file, pages, month_of(month)
            built = collect(ReportRequest(workloads, *source), progress)
        advice = advise(request, built)
    except (BadReportRequest, Unanswered) as error:
        raise click.ClickException(str(error)) from None
    if html is not None:
        from scaler.report.page import page

        Path(html).write_text(page(built, span(built), advice), encoding="utf-8")
    if output == "table":
        from scaler.report.statement import sections

        report_tables(built)
        section_tables([*sections(built), *advice])
    elif output == "csv":
        from scaler.report.statement import to_csv

        click.echo(to_csv(built), nl=False)
    else:
        _print_document({**built, "advice": [section._asdict() for section in advice]}, output)


def _print_memory(request: Any, output: str, html: str | None) -> None:
    from .report.advice import sections
    from .report.tables import section_tables

    if html is not None or output == "csv":
        raise click.UsageError("--html and -o csv: name a workload")
    advice = sections(request, None)
    if output == "table":
        section_tables(advice)
    else:
        _print_document({"advice": [section._asdict() for section in advice]}, output)


def _duration(text: str, option: str) -> float:
    from scaler.config.scalars import read_duration

    try:
        return read_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


@main.command(short_help="Explain the replica count of a workload.")
@click.argument("workload", metavar="NAMESPACE/NAME")
@click.option("--at", metavar="TIME", help="Past time: 2026-11-22T10:00:00Z, POSIX seconds, or 10m (ago).")
@SERVER
@OUTPUT
def explain(workload: str, at: str | None, server: str, output: str) -> None:
    """Explain the replica count of a workload step by step: from its scraped samples to what KEDA and the HPA do."""
    import time

    from .client import Unanswered
    from .explain import BadExplainRequest, ExplainRequest, explain_tables, fetch

    try:
        document = fetch(ExplainRequest(workload, at, server, REQUEST_TIMEOUT_S), time.time())
    except (BadExplainRequest, Unanswered) as error:
        raise click.ClickException(str(error)) from None
    if output == "table":
        explain_tables(document)
    else:
        _print_document(document, output)


@main.command(short_help="Print versions.")
@OUTPUT
def version(output: str) -> None:
    """Print the versions of Tidegate and of its main dependencies."""
    import platform
    from importlib.metadata import version as installed_version

    document = {"tidegate": installed_version("tidegate"), "python": platform.python_version()}
    document |= {name: installed_version(name) for name in ("aiohttp", "grpcio", "numba", "numpy", "pydantic")}
    if output == "table":
        click.echo("\n".join(f"{name:<9} {number}" for name, number in document.items()))
    else:
        _print_document(document, output)


def _print_document(document: Any, output: str) -> None:
    """output: "yaml", or anything else for JSON."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    else:
        import json

        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def _exit_now(status: int) -> NoReturn:
    """Ends the process at once. A normal exit waits for threads, and a hanging name look-up is one."""
    import os

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _program() -> str:
    """How the user called this program, for commands to copy."""
    from shutil import which

    called = sys.argv[0]
    is_script = Path(called).name == "tidegate"
    return called if is_script and which("tidegate") != str(Path(called).absolute()) else "tidegate"


def _bad_config(errors: ConfigErrors) -> SystemExit:
    """Prints the errors, one per line, and nothing else."""
    for problem in errors.problems:
        click.echo(str(problem), err=True)
    return SystemExit(EX_CONFIG)

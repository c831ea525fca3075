"""Runs all checks of `tidegate doctor`: the machine, the configuration, the daemon, the cluster, the targets.

Worked example: `asyncio.run(examine("config.yaml", None, os.environ, WallClock()))` returns a list of Checks. An
invalid configuration is a failure and ends the list after the checks of the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module

from exporter.clock import Clock
from scaler.config import Config, ConfigErrors, Kubernetes, Problem, parse
from scaler.config import read as text_of

from . import daemon, kubernetes, machine
from .check import Check, fail, ok, warn

# Of all checks outside this machine: a scrape has scrape.timeout, a list of the API server 65 s.
TIMEOUT_S = 120.0


async def examine(file: str | None, server: str | None, environment: Mapping[str, str], clock: Clock) -> list[Check]:
    """file: path of the configuration; None for the defaults, in a pod with `kubernetes`. server: URL of a running
    daemon; None for the one on this machine, if any.
    """
    checks = [machine.check_python(), machine.check_kernel_cache(environment), *machine.check_packages()]
    config, config_checks = _check_config(file, clock.now())
    checks += config_checks
    if config is None:
        return checks + ([] if server is None else await _check_daemon(server, None, clock))
    local = await _local_daemon(config)
    for key, (host, port) in machine.listeners(config).items():
        checks.append(await asyncio.to_thread(machine.check_port, key, host, port, daemon_runs=local is not None))
    url = server or local
    checks += [] if url is None else await _check_daemon(url, config, clock)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return checks + await _check_outside(config, clock)
    except TimeoutError:
        remedy = "find what hangs with `tidegate read URL` and `kubectl get --raw /readyz`"
        return [*checks, fail("everything else", f"no result within {TIMEOUT_S:.0f} s", remedy)]


async def _check_outside(config: Config, clock: Clock) -> list[Check]:
    checks: list[Check] = []
    cluster = None
    if config.kubernetes is not None:
        checks, cluster = await kubernetes.examine(config, config.kubernetes, clock)
    # This imports the policy, which compiles its kernels if they are not cached.
    await asyncio.to_thread(import_module, f"{__package__}.targets")
    from .targets import examine as examine_targets  # noqa: PLC0415

    return checks + await examine_targets(config, cluster, clock)


def _check_config(file: str | None, now: float) -> tuple[Config | None, list[Check]]:
    if file is None:
        section = Kubernetes() if kubernetes.in_a_pod() else None
        return Config(kubernetes=section), [ok("configuration", "no file given (-c FILE): checking the defaults")]
    try:
        config, warnings = parse(text_of(file), file, now)
    except ConfigErrors as errors:
        return None, [
            fail("configuration", str(problem), _remedy(problem))
            if problem.severity == "error"
            else warn("configuration", str(problem), _remedy(problem))
            for problem in errors.problems
        ]
    checks = [warn("configuration", str(problem), _remedy(problem)) for problem in warnings]
    return config, [*checks, ok("configuration", f"{file} is valid, {len(config.workloads)} workload(s)")]


def _remedy(problem: Problem) -> str:
    return f"tidegate check --explain {problem.rule}" if problem.rule else "see docs/reference/configuration.md"


async def _local_daemon(config: Config) -> str | None:
    """URL of a daemon with this configuration on this machine. Returns None if none runs."""
    address = config.listen.http
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]", "[::]": "[::1]"}.get(address.host, address.host)  # noqa: S104
    url = f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{address.port}"
    return url if address.port and await asyncio.to_thread(daemon.is_tidegate, url) else None


async def _check_daemon(url: str, config: Config | None, clock: Clock) -> list[Check]:
    interval_s = None if config is None or config.state is None else config.state.interval
    return await asyncio.to_thread(daemon.examine, url.rstrip("/"), clock.now, interval_s)

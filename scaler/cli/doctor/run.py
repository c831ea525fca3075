"""All checks of `tidegate doctor`, the slow ones at the same time, in an order that a person reads: the machine, the
configuration, the daemon, the cluster, the pages.

Worked example: `asyncio.run(examine("config.yaml", None, os.environ, WallClock()))` is a list of Checks, and any of
them that is `fail` is the command's status 1. A configuration that cannot be read is one of those, and ends the list
after the machine's: nobody knows what else to look at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module

from exporter.clock import Clock
from scaler.config import Config, ConfigErrors, Kubernetes, Problem, parse
from scaler.config import read as text_of

from . import daemon, kube, machine
from .check import Check, fail, ok, warn

# Of everything together: a page has scrape.timeout, a list of the API server 65 s.
PATIENCE_S = 120.0


async def examine(file: str | None, server: str | None, environment: Mapping[str, str], clock: Clock) -> list[Check]:
    """file: of the configuration; None: its defaults, and in a pod the cluster. server: of a daemon that runs; None:
    the one on this machine, if there is one.
    """
    checks = [machine.python(), machine.kernels_cache(environment), *machine.names()]
    config, said = _configuration(file, clock.now())
    checks += said
    if config is None:
        return checks + ([] if server is None else await _daemon(server, None, clock))
    local = await _local(config)
    checks += await _ports(config, ours=local is not None)
    where = server or local
    checks += [] if where is None else await _daemon(where, config, clock)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return checks + await _outside(config, clock)
    except TimeoutError:
        do = "look for what hangs with `tidegate read URL`, and `kubectl get --raw /readyz`"
        return [*checks, fail("everything else", f"not answered within {PATIENCE_S:.0f} s", do)]


async def _outside(config: Config, clock: Clock) -> list[Check]:
    checks, cluster = [], None
    if config.kubernetes is not None:
        seen = await kube.examine(config, config.kubernetes, clock)
        checks, cluster = seen.checks, seen.cluster
    # With the words of the policy come its kernels, which are compiled here if there is no cache of them.
    await asyncio.to_thread(import_module, f"{__package__}.pages")
    from .pages import examine as examine_pages  # noqa: PLC0415

    return checks + await examine_pages(config, cluster, clock)


def _configuration(file: str | None, now: float) -> tuple[Config | None, list[Check]]:
    if file is None:
        kubernetes = Kubernetes() if kube.in_a_pod() else None
        return Config(kubernetes=kubernetes), [
            ok("configuration", "none is named (-c FILE): the defaults are looked at")
        ]
    try:
        config, warnings = parse(text_of(file), file, now)
    except ConfigErrors as errors:
        return None, [
            fail("configuration", str(problem), _remedy(problem))
            if problem.severity == "error"
            else warn("configuration", str(problem), _remedy(problem))
            for problem in errors.problems
        ]
    said = [warn("configuration", str(problem), _remedy(problem)) for problem in warnings]
    return config, [*said, ok("configuration", f"{file} is valid, {len(config.workloads)} workload(s) of its own")]


def _remedy(problem: Problem) -> str:
    return f"tidegate check --explain {problem.rule}" if problem.rule else "see docs/reference/configuration.md"


async def _local(config: Config) -> str | None:
    """Where a Tidegate of this configuration answers on this machine, if one runs."""
    address = config.listen.http
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]", "[::]": "[::1]"}.get(address.host, address.host)  # noqa: S104
    url = f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{address.port}"
    return url if address.port and await asyncio.to_thread(daemon.is_tidegate, url) else None


async def _ports(config: Config, *, ours: bool) -> list[Check]:
    listeners = machine.listeners(config).items()
    return [await asyncio.to_thread(machine.port, key, host, port, ours=ours) for key, (host, port) in listeners]


async def _daemon(url: str, config: Config | None, clock: Clock) -> list[Check]:
    every_s = None if config is None or config.state is None else config.state.interval
    return await asyncio.to_thread(daemon.examine, url.rstrip("/"), clock.now, every_s)

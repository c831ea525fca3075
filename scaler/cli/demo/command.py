"""Checks the options of `tidegate demo`, fills in their defaults, and runs the demo of the chosen engine.

Worked example: `played(DemoOptions(None, None, "llama.cpp", 7, None, False, "tidegate"))` plays 75 s in real time.
"""

from __future__ import annotations

from typing import NamedTuple

import click

from . import real, run
from .llamacpp import MissingEngine

SIMULATED = "simulated"
_LAST_PORT = 65_535


class Misuse(click.ClickException):
    """An error of one line, without the usage of UsageError."""

    exit_code = click.UsageError.exit_code


class DemoOptions(NamedTuple):
    """The options of the command line. duration, speed, port: None for their defaults."""

    duration: float | None
    speed: float | None
    engine: str
    seed: int
    port: int | None
    as_json: bool
    program: str


def played(options: DemoOptions) -> tuple[str, ...]:
    """Runs the demo; returns its problems as sentences. Raises ClickException."""
    _check(options)
    simulated = options.engine == SIMULATED
    default_s = run.DURATION_S if simulated else real.DURATION_S
    request = run.DemoRequest(
        duration_s=default_s if options.duration is None else options.duration,
        speed=run.SPEED if options.speed is None else options.speed,
        seed=options.seed,
        port=options.port,
        as_json=options.as_json,
        program=options.program,
    )
    try:
        return run.play(request) if simulated else real.play(request)
    except run.PortInUse as error:
        raise click.ClickException(f"{error}; choose another with --port") from None
    except MissingEngine as error:
        raise click.ClickException(str(error)) from None


def _check(options: DemoOptions) -> None:
    """Raises ClickException of status 2."""
    if options.port is not None and not 0 <= options.port <= _LAST_PORT:
        raise Misuse(f"--port: must be from 0 to {_LAST_PORT}, got {options.port}")
    if options.speed is not None and options.engine != SIMULATED:
        raise click.UsageError(f"--speed: {options.engine} runs in real time")
    if options.speed is not None and options.speed <= 0:
        raise click.BadParameter(f"must be above 0, got {options.speed:g}", param_hint="--speed")
    if options.duration is not None and options.duration < 0:
        raise click.BadParameter(f"must be at least 0, got {options.duration:g}", param_hint="--duration")
    if options.duration == 0 and options.engine != SIMULATED:
        raise click.BadParameter(f"must be above 0 with {options.engine}, got 0", param_hint="--duration")

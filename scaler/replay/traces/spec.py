"""Parses the LOAD argument: a file, a folder or a generator, with parameters after a colon.

    azure.csv                         a file
    azure.csv:from=10m,to=40m         a part of it; the load begins at `from`
    ServeGen/m-large:clients=30+128   some clients of a folder of ServeGen's
    day.csv:share=1/8                 each request kept with this chance
    each:7m    flash:peak=50,for=3h   a generator (see `generators`)

What exists as a file is that file, whatever it is called.

Worked example: `load("each:7m,for=1h")` has requests at 420, 840 … 3360 s and is called "each:7m,for=1h".
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
from pydantic_core import PydanticCustomError

from scaler.config.scalars import did_you_mean, read_duration

from .formats import read, read_clients
from .generators import GENERATORS, Generator, generate
from .recorded import BadLoad, Recorded, subset

FROM, TO, SHARE, CLIENTS = "from", "to", "share", "clients"
_OF_FILES = (FROM, TO, SHARE, CLIENTS)


def load(argument: str, form: str | None = None, seed: int = 0) -> Recorded:
    """form: the format of a file; None is what its content says. Raises BadLoad."""
    if _exists(argument):
        return read(Path(argument), form, seed)
    path_text, _, rest = argument.rpartition(":")
    if path_text and _exists(path_text):
        return _part_of(path_text, _settings(argument, rest, _OF_FILES), argument, form, seed)
    kind, _, rest = argument.partition(":")
    if kind not in GENERATORS:
        meant = did_you_mean(kind, GENERATORS)
        hint = f" (did you mean {meant}?)" if meant else ""
        raise BadLoad(f"{argument}: is no file, and {kind} none of the generators {', '.join(GENERATORS)}{hint}")
    generator = GENERATORS[kind]
    settings = _settings(argument, rest, tuple(generator.numbers), generator.first)
    return generate(
        kind, {key: _number(argument, key, text, generator) for key, text in settings.items()}, seed, argument
    )


def _exists(argument: str) -> bool:
    try:
        return Path(argument).exists()
    except OSError:  # too long for a name: words, and no file
        return False


def _part_of(path_text: str, settings: Mapping[str, str], argument: str, form: str | None, seed: int) -> Recorded:
    begin = _duration(argument, FROM, settings.get(FROM, "0s"))
    end = _duration(argument, TO, settings[TO]) if TO in settings else np.inf
    if CLIENTS in settings:
        recorded = read_clients(Path(path_text), _clients(argument, settings[CLIENTS]), seed, begin, end)
    else:
        recorded = read(Path(path_text), form, seed)
    load = subset(recorded.load, (recorded.load.at >= begin) & (recorded.load.at < end), begin)
    if SHARE in settings:
        chances = np.random.default_rng([seed, 1]).uniform(size=len(load.at))
        load = subset(load, chances < _share(argument, settings[SHARE]))
    return Recorded(load, recorded.notes)


def _settings(argument: str, rest: str, allowed: tuple[str, ...], first: str = "") -> dict[str, str]:
    """`a=1,b=2`; what comes first may go without its name, if it has one that is meant."""
    found: dict[str, str] = {}
    for position, part in enumerate(rest.split(",") if rest else ()):
        key, equals, value = part.partition("=")
        if not equals and position == 0 and first:
            key, value = first, part
        if key not in allowed or not value:
            meant = did_you_mean(key, allowed) if key not in allowed else None
            hint = f" (did you mean {meant}?)" if meant else ""
            raise BadLoad(f"{argument}: must be key=value of {', '.join(allowed)}, got {part!r}{hint}")
        if key in found:
            raise BadLoad(f"{argument}: {key}: must be given once")
        found[key] = value
    return found


def _number(argument: str, key: str, text: str, generator: Generator) -> float:
    if key in generator.durations:
        return _duration(argument, key, text)
    try:
        return float(text)
    except ValueError:
        raise BadLoad(f"{argument}: {key}: must be a number, got {text!r}") from None


def _duration(argument: str, key: str, text: str) -> float:
    try:
        return float(text) if text.replace(".", "", 1).isdecimal() else read_duration(text)
    except PydanticCustomError as error:
        raise BadLoad(f"{argument}: {key}: {error}, got {text!r}") from None


def _share(argument: str, text: str) -> float:
    try:
        share = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        share = -1.0
    if not 0.0 < share <= 1.0:
        raise BadLoad(f"{argument}: {SHARE}: must be above 0 and at most 1, such as 0.1 or 1/8, got {text!r}")
    return share


def _clients(argument: str, text: str) -> list[int]:
    clients = text.split("+")
    if not all(client.isdecimal() for client in clients):
        raise BadLoad(f"{argument}: {CLIENTS}: must be numbers such as 30+128+107, got {text!r}")
    return [int(client) for client in clients]

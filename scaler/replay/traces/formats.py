"""A file, or a folder of ServeGen's, to a load: which format it is, by its content, and who reads it.

The first bytes say npz, the first line everything else; a name says nothing, but that a dataset of ServeGen lies beside
its trace. Whoever knows better names the format.

Worked example: `read(Path("conversation_trace.jsonl"))`, whose first line is `{"timestamp": 0, "input_length": 6758,
"output_length": 500, "hash_ids": [0, …]}`, is read as Mooncake's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .files import lines, name_of, reading
from .mooncake import KEYS, is_mooncake, read_mooncake
from .packed import SIGN, read_packed
from .recorded import BadLoad, Recorded
from .servegen import DATASET, TRACE, is_servegen, read_servegen, traces_in
from .tables import layout_of, read_table

TABLE, MOONCAKE, SERVEGEN, NPZ = "csv", "mooncake", "servegen", "npz"
FORMATS = (TABLE, MOONCAKE, SERVEGEN, NPZ)
LONGEST_LINE = 1 << 20  # bytes looked at to know a format: Mooncake's first line is a few hundred


def read(path: Path, form: str | None = None, seed: int = 0) -> Recorded:
    """The load in a file. form: one of FORMATS; None is what its content says. Raises BadLoad."""
    name = name_of(path)
    if path.is_dir():
        return read_servegen(path.resolve().name, traces_in(path), seed)
    match form or format_of(path):
        case "csv":
            with lines(path) as found:
                return read_table(name, str(path), found)
        case "mooncake":
            with lines(path) as found:
                return read_mooncake(name, str(path), found, seed)
        case "servegen":
            return read_servegen(name.removesuffix(TRACE.removesuffix(".csv")), [path], seed)
        case "npz":
            return read_packed(name, path)
    raise BadLoad(f"{path}: format must be one of {', '.join(FORMATS)}, got {form}")


def read_clients(folder: Path, clients: Sequence[int], seed: int, begin: float, end: float) -> Recorded:
    """The load of some of ServeGen's clients, where `begin` to `end` (seconds) is wanted of it. Raises BadLoad."""
    paths = [folder / f"chunk-{client}{TRACE}" for client in clients]
    return read_servegen(f"{folder.resolve().name}-{'+'.join(map(str, clients))}", paths, seed, begin, end)


def format_of(path: Path) -> str:
    with reading(path) as opened:
        head = opened.read(LONGEST_LINE)
    if head.startswith(SIGN):
        return NPZ
    text = head.decode("utf-8-sig", errors="replace")
    line, first = next(((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()), (1, ""))
    if not first:
        raise BadLoad(f"{path}: is empty")
    if is_mooncake(first):
        return MOONCAKE
    if is_servegen(first):
        return SERVEGEN
    if layout_of(first) is not None:
        return TABLE
    if path.name.endswith(DATASET):
        raise BadLoad(f"{path}: is one half of a client of ServeGen: give its {path.name.removesuffix(DATASET)}{TRACE}")
    shown = first if len(first) <= 60 else first[:57] + "..."  # noqa: PLR2004
    raise BadLoad(
        f"{path}:{line}: is no load we know: must be CSV with a time, input and output tokens (Azure's and BurstGPT's "
        f"too), JSON lines with {', '.join(KEYS)} (Mooncake), a trace of ServeGen, or npz; got {shown!r}"
    )

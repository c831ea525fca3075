"""How commands print what programs read: `-o table|json|yaml`, and documents in the last two; and whom they ask:
`--server`. It imports little.

Worked example: `print_document({"a": 1}, "yaml")` prints `a: 1`.
"""

from __future__ import annotations

import json
from typing import Any

import click

EX_PROBLEMS = 1  # exit status: it ran, and found something to change

SERVER = click.option(
    "--server", default="http://localhost:8080", show_default=True, envvar="TIDEGATE_SERVER", show_envvar=True,
    help="URL of a running daemon's HTTP port.",
)  # fmt: skip
OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True, help="Format."
)


def print_document(document: Any, output: str) -> None:
    """output: "yaml", or anything else for JSON."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))

"""Writes the stubs beside `externalscaler.proto`: `python -m tests.tools.generate_proto`. Needs grpcio-tools.

Generated code rejects runtimes older than its generator and accepts newer ones, so the committed stubs come from the
oldest grpcio-tools within pyproject.toml's lower bounds. grpcio-tools 1.76 needs protobuf 6.31 or later, but below 7:
use a separate virtual environment.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[2] / "scaler" / "api" / "keda"
STUBS = ("externalscaler_pb2.py", "externalscaler_pb2.pyi", "externalscaler_pb2_grpc.py")

_ABSOLUTE = "import externalscaler_pb2 as externalscaler__pb2"
_RELATIVE = "from . import externalscaler_pb2 as externalscaler__pb2"


def generate(into: Path) -> None:
    """Write the three stubs into an existing folder."""
    outputs = [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python")]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={HERE}", *outputs, "externalscaler.proto"]
    subprocess.run(protoc, check=True)
    # protoc ignores packages: it would import a top-level module.
    services = into / "externalscaler_pb2_grpc.py"
    text = services.read_text()
    if _ABSOLUTE not in text:
        raise RuntimeError(f"{services}: has no line {_ABSOLUTE!r} to make relative; has the generator changed?")
    services.write_text(text.replace(_ABSOLUTE, _RELATIVE))


if __name__ == "__main__":
    generate(HERE)

"""The committed stubs match the committed .proto, and load with the oldest supported libraries."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from scaler.api.keda import servicer
from tests.tools import generate_proto

ROOT = Path(__file__).parents[4]

# Differences between versions of the generator that have no meaning: its version, in three places, and two ways to
# write the same Python.
VERSIONS = (
    (r"^# Protobuf Python Version: .*$", ""),
    (r"(_runtime_version\.Domain\.PUBLIC,)[\s\d,]*", r"\1"),
    (r"^GRPC_GENERATED_VERSION = .*$", ""),
    (r"\(object\):$", ":"),
    (r"\bbool = \.\.\.", "_Optional[bool] = ..."),
)


def without_versions(text: str) -> str:
    for pattern, replacement in VERSIONS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@pytest.mark.skipif(find_spec("grpc_tools") is None, reason="grpcio-tools is not installed: `make test` does")
@pytest.mark.parametrize("stub", generate_proto.STUBS)
def test_regenerating_changes_nothing(tmp_path, stub):
    generate_proto.generate(tmp_path)
    assert without_versions((tmp_path / stub).read_text()) == without_versions((generate_proto.HERE / stub).read_text())


def test_stubs_load_with_the_oldest_supported_libraries():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+).*", line).groups() for line in project["dependencies"])
    grpc_required = re.search(
        r"GRPC_GENERATED_VERSION = '([\d.]+)'", (generate_proto.HERE / generate_proto.STUBS[2]).read_text()
    )
    protobuf_required = re.search(
        r"Protobuf Python Version: ([\d.]+)", (generate_proto.HERE / generate_proto.STUBS[0]).read_text()
    )
    assert version(grpc_required[1])[:2] <= version(bounds["grpcio"])
    assert version(protobuf_required[1])[:2] <= version(bounds["protobuf"])


def test_every_rpc_of_the_proto_is_implemented():
    calls = re.findall(r"^  rpc (\w+)", (generate_proto.HERE / "externalscaler.proto").read_text(), flags=re.MULTILINE)
    assert calls == ["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics", "StreamMetricSpec"]
    assert all(call in vars(servicer.Servicer) for call in calls)

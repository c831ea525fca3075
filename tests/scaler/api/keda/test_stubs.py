"""The committed stubs are those of the committed .proto, and load with the libraries that the project promises."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from scaler.api.keda import servicer
from tests.tools import generate_proto

ROOT = Path(__file__).parents[4]

# What one generator writes differently from another, and that means nothing: its own version, in three places, and
# two ways to write the same Python.
VERSIONS = (
    (r"^# Protobuf Python Version: .*$", ""),
    (r"(_runtime_version\.Domain\.PUBLIC,)[\s\d,]*", r"\1"),
    (r"^GRPC_GENERATED_VERSION = .*$", ""),
    (r"\(object\):$", ":"),
    (r"\bbool = \.\.\.", "_Optional[bool] = ..."),
)


def without_versions(text: str) -> str:
    for pattern, instead in VERSIONS:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@pytest.mark.skipif(find_spec("grpc_tools") is None, reason="grpcio-tools is not installed: `make test` does")
@pytest.mark.parametrize("stub", generate_proto.STUBS)
def test_regenerating_changes_nothing(tmp_path, stub):
    generate_proto.generate(tmp_path)
    assert without_versions((tmp_path / stub).read_text()) == without_versions((generate_proto.HERE / stub).read_text())


def test_the_stubs_load_with_the_oldest_libraries_we_promise():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+).*", line).groups() for line in project["dependencies"])
    grpc_wanted = re.search(
        r"GRPC_GENERATED_VERSION = '([\d.]+)'", (generate_proto.HERE / generate_proto.STUBS[2]).read_text()
    )
    protobuf_wanted = re.search(
        r"Protobuf Python Version: ([\d.]+)", (generate_proto.HERE / generate_proto.STUBS[0]).read_text()
    )
    assert version(grpc_wanted[1])[:2] <= version(bounds["grpcio"])
    assert version(protobuf_wanted[1])[:2] <= version(bounds["protobuf"])


def test_every_call_of_the_contract_is_implemented():
    calls = re.findall(r"^  rpc (\w+)", (generate_proto.HERE / "externalscaler.proto").read_text(), flags=re.MULTILINE)
    assert calls == ["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics", "StreamMetricSpec"]
    assert all(call in vars(servicer.Servicer) for call in calls)

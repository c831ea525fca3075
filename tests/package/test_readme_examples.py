"""What the README shows is what the product takes."""

import re
from pathlib import Path

import yaml

from scaler.board import Reason
from scaler.config import parse
from scaler.keda.externalscaler_pb2 import ScaledObjectRef
from scaler.keda.metadata import read

README = (Path(__file__).parents[2] / "README.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)


def test_every_configuration_in_the_readme_is_a_good_one():
    configurations = [text for text in EXAMPLES if "apiVersion" not in text]
    assert len(configurations) == 2
    for text in configurations:
        parse(text, "README.md")


def test_the_scaled_object_in_the_readme_names_the_workload_of_its_configuration():
    (text,) = (text for text in EXAMPLES if "apiVersion" in text)
    scaled_object = yaml.safe_load(text)
    metadata = scaled_object["metadata"]
    (trigger,) = scaled_object["spec"]["triggers"]
    ref = ScaledObjectRef(name=metadata["name"], namespace=metadata["namespace"], scalerMetadata=trigger["metadata"])
    config, _ = parse(next(text for text in EXAMPLES if "gpus:" in text), "README.md")
    assert read(ref) == config.workloads[0].key
    assert scaled_object["spec"]["maxReplicaCount"] == config.workloads[0].replicas.max


def test_the_readme_explains_every_reason():
    assert [reason for reason in Reason if f"`{reason}`" not in README] == []

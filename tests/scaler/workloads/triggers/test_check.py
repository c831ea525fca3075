"""`tidegate check` with manifests among its files."""

import json

import pytest
from click.testing import CliRunner

from scaler.cli import main

_SCALED = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {namespace: ai, name: chat}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 1
  maxReplicaCount: 8
  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleDown: {stabilizationWindowSeconds: 30}}}}
  triggers:
    - type: external-push
      metadata: {scalerAddress: "tidegate:6000", engine: ENGINE, keep_warm: 4s}
"""


@pytest.fixture
def check(tmp_path):
    """`check(config=…, manifest=…)`: exit status and output, with the folder's name left out."""

    def run(*options, **texts):
        files = []
        for name, text in texts.items():
            file = tmp_path / f"{name}.yaml"
            file.write_text(text)
            files.append(str(file))
        done = CliRunner().invoke(main, ["check", *files, *options])
        return done.exit_code, done.output.replace(f"{tmp_path}/", "")

    return run


def test_a_manifest_says_before_it_is_applied_what_the_daemon_would_say_after(check):
    status, said = check(manifest=_SCALED.replace("ENGINE", "vlm"))

    assert status == 1
    assert said.startswith("manifest.yaml:11:58: spec.triggers.0.metadata.engine: must be one of kserve, ")


def test_a_manifest_is_checked_against_the_configuration_beside_it_in_any_order(check):
    good, config = _SCALED.replace("ENGINE", "vllm"), "kubernetes: {}\nscrape: {interval: 1s}\n"

    assert check(manifest=good)[0] == 1  # the default interval is 5s
    assert check(manifest=good, config=config) == (0, "2 file(s) fine\n")
    assert check(config=config, manifest=good) == (0, "2 file(s) fine\n")


def test_what_is_not_tidegates_business_is_counted(check):
    status, said = check(manifest="apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Service\n")

    assert (status, said) == (0, "1 file(s) fine, 2 document(s) skipped\n")


def test_a_problem_of_a_manifest_is_the_same_document_as_one_of_a_configuration(check):
    status, said = check("-o", "json", manifest=_SCALED.replace("ENGINE", "vllm"), config="tick: 2h\n")
    problems = json.loads(said)

    assert status == 1
    assert [
        (problem["file"], problem["line"], problem["key"]) for problem in problems if problem["severity"] == "error"
    ] == [
        ("manifest.yaml", 11, "spec.triggers.0.metadata.keep_warm"),
        ("config.yaml", 1, "tick"),
    ]


def test_the_same_file_twice_is_the_same_problems_twice(check, tmp_path):
    (tmp_path / "a.yaml").write_text("tick: 2h\n")
    done = CliRunner().invoke(main, ["check", *[str(tmp_path / "a.yaml")] * 2])

    assert done.output.count("must be at most 1m") == 2


def test_a_configuration_that_is_larger_than_a_config_map_is_still_none(check):
    status, said = check(config="#" * (2**20 + 1))

    assert (status, said) == (1, "config.yaml: must be at most 1MiB\n")

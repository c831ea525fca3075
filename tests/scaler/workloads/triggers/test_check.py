"""Runs `tidegate check` on manifests and configurations."""

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
    """`check(config=…, manifest=…)`: exit status and output, without the folder's name."""

    def run(*options, **texts):
        files = []
        for name, text in texts.items():
            file = tmp_path / f"{name}.yaml"
            file.write_text(text)
            files.append(str(file))
        done = CliRunner().invoke(main, ["check", *files, *options])
        return done.exit_code, done.output.replace(f"{tmp_path}/", "")

    return run


def test_manifest_gets_the_errors_of_the_daemon_before_it_is_applied(check):
    status, output = check(manifest=_SCALED.replace("ENGINE", "vlm"))

    assert status == 1
    assert output.startswith("manifest.yaml:11:58: spec.triggers.0.metadata.engine: must be one of kserve, ")


def test_manifest_is_checked_with_the_given_configuration_in_any_order(check):
    good, config = _SCALED.replace("ENGINE", "vllm"), "kubernetes: {}\nscrape: {interval: 1s}\n"

    assert check(manifest=good)[0] == 1  # the default interval is 5s
    assert check(manifest=good, config=config) == (0, "2 file(s) fine\n")
    assert check(config=config, manifest=good) == (0, "2 file(s) fine\n")


def test_other_documents_are_counted_as_skipped(check):
    status, output = check(manifest="apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Service\n")

    assert (status, output) == (0, "1 file(s) fine, 2 document(s) skipped\n")


def test_problems_of_manifests_and_configurations_have_the_same_form(check):
    status, output = check("-o", "json", manifest=_SCALED.replace("ENGINE", "vllm"), config="tick: 2h\n")
    problems = json.loads(output)

    assert status == 1
    assert [
        (problem["file"], problem["line"], problem["key"]) for problem in problems if problem["severity"] == "error"
    ] == [
        ("manifest.yaml", 11, "spec.triggers.0.metadata.keep_warm"),
        ("config.yaml", 1, "tick"),
    ]


def test_file_given_twice_is_reported_twice(check, tmp_path):
    (tmp_path / "a.yaml").write_text("tick: 2h\n")
    done = CliRunner().invoke(main, ["check", *[str(tmp_path / "a.yaml")] * 2])

    assert done.output.count("must be at most 1m") == 2


def test_configuration_larger_than_a_config_map_is_refused(check):
    status, output = check(config="#" * (2**20 + 1))

    assert (status, output) == (1, "config.yaml: must be at most 1MiB\n")

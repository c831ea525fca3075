"""The chart, Kubernetes and Tidegate accept the files of docs/tutorials/quickstart.md."""

import yaml

from scaler.config import parse
from scaler.lint.run import check_files
from tests.deploy.conftest import problems_of, render  # noqa: F401 - fixtures
from tests.docs.pages import ROOT, text_of
from tests.fakes.manifests import check_manifests

FOLDER = ROOT / "deploy/quickstart"
VALUES = yaml.safe_load((FOLDER / "values.yaml").read_text(encoding="utf-8"))
JOBS = (FOLDER / "jobs.yaml").read_text(encoding="utf-8")
CONFIG, WARNINGS = parse(yaml.safe_dump(VALUES["config"]), "values.yaml")
(WORKLOAD,) = CONFIG.workloads


def scaled():
    return next(each for each in yaml.safe_load_all(JOBS) if each["kind"] == "ScaledObject")


def test_tidegate_accepts_the_files():
    assert WARNINGS == []
    problems = check_files([str(FOLDER / "jobs.yaml")]).problems

    assert [str(problem) for problem in problems if problem.severity != "info"] == []
    assert check_manifests(JOBS, "jobs.yaml", CONFIG).problems == []


def test_chart_accepts_the_values(render):  # noqa: F811
    assert {each["kind"] for each in render(VALUES)} >= {"Deployment", "ConfigMap", "ClusterTriggerAuthentication"}


def test_kubernetes_and_keda_accept_the_objects(problems_of):  # noqa: F811
    assert [problem for each in yaml.safe_load_all(JOBS) for problem in problems_of(each)] == []


def test_trigger_names_the_workload_of_the_values():
    spec = scaled()["spec"]

    assert spec["triggers"][0]["metadata"]["workload"] == WORKLOAD.name == spec["scaleTargetRef"]["name"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (WORKLOAD.replicas.min, WORKLOAD.replicas.max)


def test_arithmetic_of_the_page_matches_the_files():
    page = text_of("docs/tutorials/quickstart.md")
    jobs = page.partition("RPUSH jobs ")[2].partition("\n")[0].split()

    assert f"{len(jobs)} jobs at `objectives.work: {WORKLOAD.work:g}` are {len(jobs) / WORKLOAD.work:g}" in page
    assert (WORKLOAD.keep_warm, scaled()["spec"]["cooldownPeriod"]) == (60.0, 30)


def test_job_ends_within_the_grace_period_of_its_pod_and_within_keep_warm():
    worker = next(
        each
        for each in yaml.safe_load_all(JOBS)
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "worker"
    )
    pod = worker["spec"]["template"]["spec"]
    (script,) = pod["containers"][0]["args"]
    seconds = int(script.partition("sleep ")[2].split()[0])

    assert seconds < pod["terminationGracePeriodSeconds"]
    assert seconds < WORKLOAD.keep_warm

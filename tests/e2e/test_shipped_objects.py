"""The API server accepts what is shipped, and the chart's roles have every permission that the daemon needs."""

import json
from http import HTTPStatus

import pytest

from tests.deploy.shared import DEPLOY, ci_values, objects

from .api import ZERO_REFUSED, ApiFailure
from .release import rendered
from .waiting import until

USES = ()
EXAMPLES = [pytest.param(path, id=path.stem) for path in sorted((DEPLOY / "examples").glob("*.yaml"))]


def test_service_account_has_every_permission_for_some_namespaces(tidegate):
    assert_permitted(tidegate)


def test_pod_is_admitted_in_a_restricted_namespace(release, api):
    pods = f"/api/v1/namespaces/{release.namespace}/pods"
    [pod] = until(lambda: api.items(pods, labelSelector="app.kubernetes.io/name=tidegate"), bool)
    assert pod["status"]["phase"] == "Pending"


@pytest.mark.parametrize("values", ci_values())
def test_chart_is_accepted(api, release, values):
    assert refused(api, rendered(values, release.namespace), release.namespace) == []


@pytest.mark.parametrize("file", EXAMPLES)
def test_example_is_accepted(api, release, file):
    failures = refused(api, objects(file.read_text(encoding="utf-8")), release.namespace)
    if failures and all(failure.is_of_zero for failure in failures):
        pytest.skip(ZERO_REFUSED)
    assert failures == []


def assert_permitted(tidegate):
    """That `tidegate doctor` finds every permission, and the daemon's log no refusal."""
    permissions = [check for check in tidegate.doctor() if check["name"].startswith("permission")]
    assert [check["status"] for check in permissions] == ["ok"], permissions
    assert "forbidden" not in tidegate.log.read_text(encoding="utf-8").lower()


def refused(api, documents, namespace):
    """The failures of a dry run. Kinds that the cluster does not have, and objects that it has, are no errors."""
    failures = []
    for document in documents:
        if not api.serves(document):
            continue
        moved = json.loads(json.dumps(document))
        moved["metadata"]["namespace"] = namespace
        try:
            api.create(moved, dry_run=True)
        except ApiFailure as failure:
            if failure.status != HTTPStatus.CONFLICT:
                failures.append(failure)
    return failures

"""The metrics API identifies a user only through the API server, never through forged headers."""

from http import HTTPStatus

import pytest
import trustme
import urllib3

from .release import METRICS_API
from .tenant import QUICK
from .test_metrics_api import annotations
from .waiting import until

VALUES = METRICS_API
TAKES = ("external-metrics",)
USES = ()
EVERYWHERE = True
FORGED = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}


@pytest.fixture
def metric_paths(tenant, page, registered):
    """A workload with a decision; returns the paths of its metric in both groups."""
    tenant.deployment("llama", page.vllm, requests=40, replicas=1, annotations=annotations(tenant, **QUICK))
    until(lambda: tenant.tidegate.decision(tenant.name, "llama"), lambda entry: entry and entry["replicas"] == 3)
    return [
        f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{tenant.name}/tidegate-replicas?labelSelector=workload%3Dllama",
        f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{tenant.name}/deployments.apps/llama/tidegate-replicas",
    ]


def token(tenant, name):
    """A token of a new ServiceAccount."""
    accounts = f"/api/v1/namespaces/{tenant.name}/serviceaccounts"
    tenant.api.post(accounts, {"metadata": {"name": name}})
    return tenant.api.post(f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]


def reader_token_of(tenant, role):
    """A token with the right to read the metrics in this namespace."""
    reader_token = token(tenant, "reader")
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": tenant.name, "name": "reader"}],
    }
    tenant.api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant.name}/rolebindings", binding)
    return reader_token


def test_forged_headers_through_the_aggregator_change_no_identity(tenant, metric_paths, release):
    reader = tenant.api.with_token(reader_token_of(tenant, release.reader))
    stranger = tenant.api.with_token(token(tenant, "stranger"))
    for path in metric_paths:
        until(lambda path=path: reader.request("GET", path)[0], lambda status: status == HTTPStatus.OK, within=20)
        for headers in ({}, FORGED):
            status, document = reader.request("GET", path, headers=headers)
            assert (status, document["items"][0]["value"]) == (HTTPStatus.OK, "3")
            status, document = stranger.request("GET", path, headers=headers)
            assert (status, document["kind"]) == (HTTPStatus.FORBIDDEN, "Status")
            assert f"system:serviceaccount:{tenant.name}:stranger" in document["message"]
    # In other namespaces the reader has no rights.
    status, _ = reader.request("GET", metric_paths[1].replace(tenant.name, "kube-system"), headers=FORGED)
    assert status == HTTPStatus.FORBIDDEN
    reader.close()
    stranger.close()


def test_direct_requests_are_authenticated_by_token_and_never_by_headers(
    tenant, metric_paths, cluster, ports, release, tmp_path
):
    trust = tmp_path / "ca.crt"
    trust.write_bytes(release.ca)
    reader, stranger = reader_token_of(tenant, release.reader), token(tenant, "stranger")

    def direct(certificate=None):
        """Connections to this host under the name of the Service."""
        names = {"server_hostname": release.server_name, "assert_hostname": release.server_name}
        files = {"ca_certs": str(trust), "cert_file": certificate}
        return urllib3.HTTPSConnectionPool(cluster.host, ports["metrics"], timeout=10.0, **names, **files)

    with direct() as pool:

        def request(path, headers):
            response = pool.request("GET", path, headers=headers, retries=False)
            return response.status, response.json()

        for path in metric_paths:
            until(lambda path=path: request(path, bearer(reader))[0], lambda status: status == HTTPStatus.OK, within=20)
            for headers in (FORGED, {**FORGED, **bearer("made-up")}, bearer("made-up")):
                status, document = request(path, headers)
                assert (status, document["kind"]) == (HTTPStatus.UNAUTHORIZED, "Status")
            status, document = request(path, {**FORGED, **bearer(stranger)})
            assert (status, document["kind"]) == (HTTPStatus.FORBIDDEN, "Status")
            assert f"system:serviceaccount:{tenant.name}" in document["message"]

    stranger = trustme.CA().issue_cert("front-proxy-client", common_name="front-proxy-client")
    both = tmp_path / "both.pem"
    both.write_bytes(stranger.private_key_and_cert_chain_pem.bytes())
    with direct(str(both)) as pool, pytest.raises(urllib3.exceptions.HTTPError):
        pool.request("GET", metric_paths[0], headers=FORGED, retries=False)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}

"""Who asks the metrics API is who the API server says, and nobody is anybody by a header."""

from http import HTTPStatus

import pytest
import trustme
import urllib3

from .metrics_api import READER, SERVER_NAME
from .place import QUICK
from .test_metrics_api import annotations
from .waiting import until

FORGED = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}


@pytest.fixture
def decided(place, page, registered):
    """A workload with a decision; the paths of its metric in both groups."""
    place.deployment("llama", page.vllm, requests=40, replicas=1, annotations=annotations(place, **QUICK))
    until(lambda: place.tidegate.decision(place.name, "llama"), lambda entry: entry and entry["replicas"] == 3)
    return [
        f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{place.name}/tidegate-replicas?labelSelector=workload%3Dllama",
        f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{place.name}/deployments.apps/llama/tidegate-replicas",
    ]


def token(place, name):
    """Of a new ServiceAccount."""
    accounts = f"/api/v1/namespaces/{place.name}/serviceaccounts"
    place.api.post(accounts, {"metadata": {"name": name}})
    return place.api.post(f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]


def reader(place):
    """The token of somebody who may read the metrics in this namespace."""
    made = token(place, "reader")
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER},
        "subjects": [{"kind": "ServiceAccount", "namespace": place.name, "name": "reader"}],
    }
    place.api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.name}/rolebindings", binding)
    return made


def test_through_the_aggregator_headers_make_nobody_another(place, decided):
    may, may_not = place.api.with_token(reader(place)), place.api.with_token(token(place, "stranger"))
    for path in decided:
        until(lambda path=path: may.ask("GET", path)[0], lambda status: status == HTTPStatus.OK, within=20)
        for headers in ({}, FORGED):
            status, document = may.ask("GET", path, headers=headers)
            assert (status, document["items"][0]["value"]) == (HTTPStatus.OK, "3")
            status, document = may_not.ask("GET", path, headers=headers)
            assert (status, document["kind"]) == (HTTPStatus.FORBIDDEN, "Status")
            assert f"system:serviceaccount:{place.name}:stranger" in document["message"]
    # Elsewhere the reader is nobody.
    status, _ = may.ask("GET", decided[1].replace(place.name, "kube-system"), headers=FORGED)
    assert status == HTTPStatus.FORBIDDEN
    may.close()
    may_not.close()


def test_asked_directly_headers_are_nobodys_and_a_token_is_whose_the_api_server_says(
    place, decided, cluster, ports, authority, tmp_path
):
    trust = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(trust))
    may, may_not = reader(place), token(place, "stranger")

    def direct(certificate=None):
        """Connections to this host that ask for the Service."""
        names = {"server_hostname": SERVER_NAME, "assert_hostname": SERVER_NAME}
        files = {"ca_certs": str(trust), "cert_file": certificate}
        return urllib3.HTTPSConnectionPool(cluster.host, ports["metrics"], timeout=10.0, **names, **files)

    with direct() as pool:

        def ask(path, headers):
            answer = pool.request("GET", path, headers=headers, retries=False)
            return answer.status, answer.json()

        for path in decided:
            until(lambda path=path: ask(path, bearer(may))[0], lambda status: status == HTTPStatus.OK, within=20)
            for headers in (FORGED, {**FORGED, **bearer("made-up")}, bearer("made-up")):
                status, document = ask(path, headers)
                assert (status, document["kind"]) == (HTTPStatus.UNAUTHORIZED, "Status")
            status, document = ask(path, {**FORGED, **bearer(may_not)})
            assert (status, document["kind"]) == (HTTPStatus.FORBIDDEN, "Status")
            assert f"system:serviceaccount:{place.name}" in document["message"]

    stranger = trustme.CA().issue_cert("front-proxy-client", common_name="front-proxy-client")
    both = tmp_path / "both.pem"
    both.write_bytes(stranger.private_key_and_cert_chain_pem.bytes())
    with direct(str(both)) as pool, pytest.raises(urllib3.exceptions.HTTPError):
        pool.request("GET", decided[0], headers=FORGED, retries=False)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}

"""A stand-in for the Kubernetes API server as aggregator: probes an APIService, and forwards requests to it.

It presents the front proxy's certificate and names the user in headers, over real TLS to 127.0.0.1. Not modelled: the
API server's own authentication, HTTP/2, and the choice among endpoints.
"""

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
import trustme

from .kubernetes import PATIENCE_S

SERVICE = "tidegate.tidegate.svc"
HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
FORM = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
AGGREGATED = f"{FORM.format('v2')},{FORM.format('v2beta1')},application/json"


class Answer(NamedTuple):
    status: int
    document: dict
    content_type: str
    retry_after: str | None


def authentication(*authorities, names=("front-proxy-client",)):
    """`data` of kube-system/extension-apiserver-authentication for these CAs."""
    return {
        "requestheader-client-ca-file": "".join(ca.cert_pem.bytes().decode() for ca in authorities),
        "requestheader-allowed-names": "[" + ",".join(f'"{name}"' for name in names) + "]",
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }


def certificate(authority, name="front-proxy-client"):
    return authority.issue_cert(name, common_name=name)


class Client:
    """A connected client. Requests share connections as those of the real aggregator do, unless `keep` is False."""

    def __init__(self, session, port):
        self._session, self._port = session, port

    async def get(self, path, headers=(), method="GET"):
        url = f"https://127.0.0.1:{self._port}{path}"
        async with (
            asyncio.timeout(PATIENCE_S),
            self._session.request(method, url, headers=list(headers), server_hostname=SERVICE) as response,
        ):
            document = await response.json(content_type=None)
            retry_after = response.headers.get("Retry-After")
            return Answer(response.status, document, response.headers["Content-Type"], retry_after)

    async def forward(self, path, user=HPA, groups=("system:authenticated",), accept="application/json"):
        """Sends a request as the aggregator does for a user."""
        headers = [("X-Remote-User", user), *(("X-Remote-Group", group) for group in groups), ("Accept", accept)]
        return await self.get(path, headers)

    async def probe(self, group, version):
        """Sends the five concurrent requests by which the aggregator checks the availability of an APIService."""
        asking = (
            self.forward(f"/apis/{group}/{version}", "system:kube-aggregator", ("system:masters",)) for _ in range(5)
        )
        return [answer.status for answer in await asyncio.gather(*asking)]

    async def external(self, namespace, metric, selector=""):
        """Reads a metric as external_metrics/client.go and the HPA's client do. Returns the sum in units, or None after
        any error.
        """
        query = f"?labelSelector={selector}" if selector else ""
        answer = await self.forward(f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}{query}")
        if answer.status != 200 or not answer.document["items"]:
            return None
        return sum(milli(item["value"]) for item in answer.document["items"]) / 1000


def milli(quantity):
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


@asynccontextmanager
async def connecting(port, server_authority, leaf=None, *, keep=True):
    """A client that trusts the server's CA and presents `leaf`."""
    context = ssl.create_default_context(cadata=server_authority.cert_pem.bytes().decode())
    if isinstance(leaf, trustme.LeafCert):
        leaf.configure_cert(context)
    connector = aiohttp.TCPConnector(ssl=context, force_close=not keep)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Client(session, port)

"""A Lease over the wire: read, made, replaced, and who comes second is told so."""

import pytest

from exporter.kubernetes.leases import ADDRESS, Lease, document, read
from exporter.kubernetes.protocol import ApiFailure, Forbidden

AT = ("tidegate", "tidegate")
MINE = Lease("a_1", "10.0.0.7:8444", 15.0, 1000.25, 1002.5, 3)


async def test_lease_that_is_written_is_read_as_it_was(fake, client):
    assert await client.lease(*AT) is None
    made = await client.write_lease(*AT, MINE)
    assert made == MINE._replace(version=made.version)
    assert await client.lease(*AT) == made
    later = await client.write_lease(*AT, made._replace(renewed_at=1004.5))
    assert (later.renewed_at, later.version != made.version) == (1004.5, True)
    assert fake.lease_writes == [(*AT, "a_1")] * 2


async def test_of_two_who_write_at_once_the_second_is_told(client):
    seen = await client.write_lease(*AT, MINE)
    await client.write_lease(*AT, seen._replace(holder="b_1"))
    for late in (seen._replace(holder="c_1"), MINE):  # one that replaces what is no more, one that makes it anew
        with pytest.raises(ApiFailure) as caught:
            await client.write_lease(*AT, late)
        assert caught.value.status == 409
    assert (await client.lease(*AT)).holder == "b_1"


async def test_what_rbac_does_not_allow_is_said_with_the_right_to_it(fake, client):
    fake.fail("Lease", 403)
    with pytest.raises(Forbidden) as caught:
        await client.lease(*AT)
    assert 'a Role in tidegate with apiGroups ["coordination.k8s.io"], resources ["leases"], verbs ["get"' in str(
        caught.value
    )


def test_its_document_is_the_apis_own():
    assert document(*AT, MINE._replace(version="7")) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "tidegate",
            "namespace": "tidegate",
            "annotations": {ADDRESS: "10.0.0.7:8444"},
            "resourceVersion": "7",
        },
        "spec": {
            "holderIdentity": "a_1",
            "leaseDurationSeconds": 15,
            "acquireTime": "1970-01-01T00:16:40.250000Z",
            "renewTime": "1970-01-01T00:16:42.500000Z",
            "leaseTransitions": 3,
        },
    }


@pytest.mark.parametrize(
    ("body", "lease"),
    [
        (b'{"metadata": {"resourceVersion": "7"}}', Lease("", version="7")),
        (b'{"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": null}}', Lease("", version="7")),
        (
            (
                b'{"metadata": {"resourceVersion": "7", "annotations": null}, "spec": {"holderIdentity": "a",'
                b' "leaseDurationSeconds": "15", "renewTime": "at noon", "acquireTime": 7, "leaseTransitions": -1}}'
            ),
            Lease("a", version="7"),
        ),
    ],
)
def test_what_a_lease_does_not_say_is_blank(body, lease):
    assert read("get lease", body) == lease


@pytest.mark.parametrize("body", [b"<html>", b"7", b"{}", b"[" * 9999, b'{"metadata": {}}'])
def test_what_is_no_lease_is_said_to_be_none(body):
    with pytest.raises(ApiFailure, match="get lease ai/t: no Lease"):
        read("get lease ai/t", body)

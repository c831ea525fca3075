"""The client reads, creates and replaces a Lease; the second of two concurrent writes is a conflict."""

import json
import time

import pytest

from exporter.kubernetes.leases import ADDRESS, Lease, document, read
from exporter.kubernetes.protocol import ApiFailure, Forbidden

AT = ("tidegate", "tidegate")
MINE = Lease("a_1", "10.0.0.7:8444", 15.0, 1000.25, 1002.5, 3)


async def test_written_lease_is_read_unchanged(fake, client):
    assert await client.lease(*AT) is None
    created = await client.write_lease(*AT, MINE)
    assert created == MINE._replace(version=created.version)
    assert await client.lease(*AT) == created
    later = await client.write_lease(*AT, created._replace(renewed_at=1004.5))
    assert (later.renewed_at, later.version != created.version) == (1004.5, True)
    assert fake.lease_writes == [(*AT, "a_1")] * 2


async def test_second_of_two_concurrent_writes_is_a_conflict(client):
    first = await client.write_lease(*AT, MINE)
    await client.write_lease(*AT, first._replace(holder="b_1"))
    for late in (first._replace(holder="c_1"), MINE):  # a replacement of an outdated version, and a second creation
        with pytest.raises(ApiFailure) as caught:
            await client.write_lease(*AT, late)
        assert caught.value.status == 409
    assert (await client.lease(*AT)).holder == "b_1"


async def test_forbidden_read_names_the_missing_permission(fake, client):
    fake.fail("Lease", 403)
    with pytest.raises(Forbidden) as caught:
        await client.lease(*AT)
    assert 'a Role in tidegate with apiGroups ["coordination.k8s.io"], resources ["leases"], verbs ["get"' in str(
        caught.value
    )


def test_document_has_the_form_of_the_api():
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
def test_missing_or_invalid_fields_are_blank(body, lease):
    assert read("get lease", body) == lease


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/Los_Angeles"])
def zone(request, monkeypatch):
    """The time zone of this machine."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("1970-01-01T00:16:42.500000Z", 1002.5),
        ("1970-01-01T05:46:42.5+05:30", 1002.5),
        ("1970-01-01T00:16:42.500000", None),
        ("1970-01-01", None),
    ],
)
def test_time_of_a_lease_never_depends_on_the_zone_of_the_machine(written, read_as):
    body = json.dumps({"metadata": {"resourceVersion": "7"}, "spec": {"acquireTime": written, "renewTime": written}})
    lease = read("get lease", body.encode())
    assert (lease.acquired_at, lease.renewed_at) == (read_as, read_as)


@pytest.mark.parametrize("body", [b"<html>", b"7", b"{}", b"[" * 9999, b'{"metadata": {}}'])
def test_malformed_lease_is_a_failure(body):
    with pytest.raises(ApiFailure, match="get lease ai/t: no Lease"):
        read("get lease ai/t", body)

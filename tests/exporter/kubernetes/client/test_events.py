"""The client writes Events, increments their count, and reports refusals."""

import pytest
from aiohttp import web

from exporter.kubernetes.events import LONGEST_NOTE, EventRecord, Subject, document
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.protocol import ApiFailure, Forbidden, NamespaceTerminating

CHAT = Subject("apps/v1", Ref("ai", "Deployment", "chat"), "uid-7")
SCALED = Subject("keda.sh/v1alpha1", Ref("ai", "ScaledObject", "llm"), "uid-8")
ASLEEP = EventRecord(CHAT, SCALED, "Normal", "Asleep", "Sleep", "asleep: idle for 5m", 1000.25)


def test_document_has_the_form_of_the_api():
    assert document(ASLEEP, "tidegate-0") == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "chat-", "namespace": "ai"},
        "eventTime": "1970-01-01T00:16:40.250000Z",
        "reportingController": "tidegate",
        "reportingInstance": "tidegate-0",
        "type": "Normal",
        "reason": "Asleep",
        "action": "Sleep",
        "note": "asleep: idle for 5m",
        "regarding": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ai", "name": "chat", "uid": "uid-7"},
        "related": {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "namespace": "ai",
            "name": "llm",
            "uid": "uid-8",
        },
    }


async def test_repeated_event_increments_the_count_of_the_existing_event(fake, client):
    name = await client.write_event(ASLEEP, "tidegate-0")
    await client.repeat_event("ai", name, 2, 1060.0)
    await client.repeat_event("ai", name, 5, 1090.5)
    [written] = fake.events.values()
    assert written["metadata"]["name"] == name
    assert written["series"] == {"count": 5, "lastObservedTime": "1970-01-01T00:18:10.500000Z"}
    assert (written["note"], written["eventTime"]) == ("asleep: idle for 5m", "1970-01-01T00:16:40.250000Z")


async def test_repeat_of_a_deleted_event_is_404(fake, client):
    name = await client.write_event(ASLEEP, "tidegate-0")
    fake.events.clear()
    with pytest.raises(ApiFailure) as caught:
        await client.repeat_event("ai", name, 2, 1060.0)
    assert caught.value.status == 404


@pytest.mark.parametrize("letter", ["a", "ä", "…"])
async def test_note_is_truncated_to_the_apis_limit_in_bytes(fake, client, letter):
    for length in (LONGEST_NOTE - 1, LONGEST_NOTE, LONGEST_NOTE + 1, 3 * LONGEST_NOTE):
        await client.write_event(ASLEEP._replace(note=letter * length), "tidegate-0")
    notes = [written["note"] for _, written in fake.event_writes]
    assert [note[-1] for note in notes[-2:]] == ["…", "…"]
    assert all(LONGEST_NOTE - 4 <= len(note.encode()) <= LONGEST_NOTE for note in notes[1:])


async def test_event_needs_no_related_object_and_no_uid(fake, client):
    await client.write_event(ASLEEP._replace(subject=CHAT._replace(uid=""), related=None), "tidegate-0")
    [written] = fake.events.values()
    assert "uid" not in written["regarding"]
    assert "related" not in written


async def test_forbidden_write_names_the_missing_permission(fake, client):
    fake.fail("Event", 403)
    with pytest.raises(Forbidden) as caught:
        await client.write_event(ASLEEP, "tidegate-0")
    assert 'apiGroups ["events.k8s.io"], resources ["events"], verbs ["create", "patch"]' in str(caught.value)


async def test_terminating_namespace_is_no_missing_permission(fake, client):
    fake.ending.add("ai")
    with pytest.raises(NamespaceTerminating) as caught:
        await client.write_event(ASLEEP, "tidegate-0")
    assert "because it is being terminated" in str(caught.value)
    assert "RBAC" not in str(caught.value)


async def test_response_that_is_no_event_is_a_failure(fake, client):
    fake._event_written = lambda *_: web.json_response({"kind": "Event"}, status=201)
    with pytest.raises(ApiFailure, match="create event in ai: no Event"):
        await client.write_event(ASLEEP, "tidegate-0")

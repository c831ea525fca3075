"""The live page is sent only to browsers, with a content security policy, and only if it changed."""

import gzip
import json
import re
import threading
from importlib.resources import files

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from exporter.scrape.loop import Skipped
from scaler.api.http.ui import Rows, RowSources
from scaler.explain.outcome import OutcomeRow
from scaler.explain.outcome_inputs import ControllerOutcome, Facts, OutcomeCode
from scaler.explain.summary import words_document
from scaler.workloads.unmatched import UnmatchedGpus, UnmatchedReason

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
NAMES = sorted(entry.name for entry in (files("scaler.api.http") / "page").iterdir())


async def fetched(site, path, **headers):
    """Returns (status, headers, body as sent)."""
    async with (
        aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "identity"}) as session,
        session.get(site.url + path, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, answer.headers, await answer.read()


async def test_browser_gets_the_page_and_other_clients_get_the_list_of_paths(site):
    status, headers, body = await fetched(site, "/", **HTML)
    assert (status, headers["Content-Type"], headers["Vary"]) == (200, "text/html; charset=utf-8", "Accept")
    assert body.startswith(b"<!doctype html>")
    for accept in ("*/*", "text/plain", "application/json"):
        status, headers, body = await fetched(site, "/", Accept=accept)
        assert (status, headers["Content-Type"], headers["Vary"]) == (200, "text/plain; charset=utf-8", "Accept")
        assert body.startswith(b"Tidegate\n")


@pytest.mark.parametrize("path", ["/", *(f"/page/{name}" for name in NAMES), "/page/words.json"])
async def test_file_has_its_type_and_a_policy_and_is_sent_once(site, path):
    status, headers, body = await fetched(site, path, **HTML)
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "json": "application/json"}
    assert status == 200
    assert headers["Content-Type"].split(";")[0] == types.get(path.rpartition(".")[2], "text/html")
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-cache")
    again = await fetched(site, path, **HTML, **{"If-None-Match": headers["ETag"]})
    assert (again[0], again[2], again[1]["ETag"]) == (304, b"", headers["ETag"])
    assert body


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".html", ".js", ".css"))])
def test_page_has_no_other_origin_and_no_inline_script_or_style(name):
    text = (files("scaler.api.http") / "page" / name).read_text()
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.\w+", text))
    assert addresses <= {"http://www.w3.org"}, "only the namespace of SVG, which is never fetched"
    assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function", text) == []
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=\"", text) == []


async def test_words_document_is_served(site):
    _, _, body = await fetched(site, "/page/words.json")
    assert json.loads(body) == json.loads(json.dumps(words_document()))


async def test_rows_are_the_board_with_problems_first_and_totals_of_the_fleet(site):
    site.publish()
    site.health.role = "leader"
    status, headers, body = await fetched(site, "/api/v1/rows")
    document = json.loads(body, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert (document["now"], document["at"], document["version"], document["role"]) == (1000.0, 1000.0, 1, "leader")
    assert document["unwell"] == ["first-tick: compiling and scraping for the first time"]
    assert [(each["name"], each["state"], each["published"]) for each in document["workloads"]] == [
        ("code", "unknown", None), ("chat", "serving", 3), ("jobs", "asleep", 0),
    ]  # fmt: skip
    assert document["fleet"]["workloads"] == {
        "serving": 1, "idle_warm": 0, "loading": 0, "pending": 0, "asleep": 1, "unknown": 1,
    }  # fmt: skip


async def test_late_and_skipped_scrapes_are_served_with_the_rows(site):
    site.scrapes, site.delays.late, site.delays.skipped[Skipped.OVERLOAD] = 40, 3, 2
    site.publish()
    _, _, body = await fetched(site, "/api/v1/rows")
    assert json.loads(body)["scrapes"] == {
        "made": 40, "late": 3, "skipped_slow_target": 0, "skipped_overload": 2,
    }  # fmt: skip


async def test_unchanged_rows_are_not_sent_again(site):
    site.publish()
    _, headers, _ = await fetched(site, "/api/v1/rows")
    condition = {"If-None-Match": headers["ETag"]}
    site.now = 1003.0
    assert (await fetched(site, "/api/v1/rows", **condition))[0] == 304
    site.health.last_tick_at = site.now
    assert (await fetched(site, "/api/v1/rows", **condition))[0] == 200, "the daemon has become ready"
    site.publisher.publish([], at=1003.0)
    status, headers, body = await fetched(site, "/api/v1/rows", **condition)
    assert (status, json.loads(body)["at"]) == (200, 1003.0), "no decision has changed, but the Board is newer"


async def test_rows_are_compressed_for_clients_that_accept_gzip(site):
    site.publish()
    _, headers, packed = await fetched(site, "/api/v1/rows", **{"Accept-Encoding": "gzip, br"})
    _, plain_headers, plain = await fetched(site, "/api/v1/rows", **{"Accept-Encoding": "identity"})
    assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert "Content-Encoding" not in plain_headers
    assert gzip.decompress(packed) == plain


@pytest.mark.parametrize("path", ["/page/page.js", "/api/v1/rows"])
@pytest.mark.parametrize("etags", ['"{}"', 'W/"{}"', '"other", W/"{}"', "*"])
async def test_matching_etag_in_any_form_gets_304(site, path, etags):
    site.publish()
    _, headers, _ = await fetched(site, path)
    opaque = headers["ETag"].removeprefix("W/").strip('"')
    assert (await fetched(site, path, **{"If-None-Match": etags.format(opaque)}))[0] == 304
    assert (await fetched(site, path, **{"If-None-Match": etags.format("other")}))[0] == (304 if etags == "*" else 200)


@pytest.mark.parametrize("etag", ["nonsense", '"', '"a" b', "W/", "é"])
async def test_malformed_etag_gets_the_rows(site, etag):
    site.publish()
    assert (await fetched(site, "/api/v1/rows", **{"If-None-Match": etag}))[0] == 200


async def test_rows_have_controller_outcomes_computed_every_five_seconds_in_a_thread(site):
    computed_at, threads = [], set()

    def outcomes():
        computed_at.append(site.now)
        decisions = site.publisher.board.decisions.values()

        def compute():
            threads.add(threading.current_thread())
            return [
                OutcomeRow(each, Facts(), ControllerOutcome(OutcomeCode.PAUSED, ("held", "and more")))
                for each in decisions
            ]

        return compute

    rows = Rows(lambda: site.publisher.board, site.health, lambda: site.now, RowSources(outcomes=outcomes))
    site.publish()
    for site.now in (1000.0, 1001.0, 1004.9, 1005.0):
        site.publisher.publish([], at=site.now)
        answer = await rows.get(make_mocked_request("GET", "/api/v1/rows"))
        workloads = json.loads(answer.body)["workloads"]
        assert {(each["hindered"], each["hindered_by"]) for each in workloads} == {("paused", "held")}
    assert computed_at == [1000.0, 1005.0]
    assert threading.current_thread() not in threads


async def test_rows_have_the_gpus_that_match_no_workload(site):
    gpus = UnmatchedGpus(UnmatchedReason.NO_POD, 17, ("ai/gone",), 1, "the cluster has no such pod")
    document = await rows_with(site, lambda: (gpus,))
    assert document["gpus_unmatched"] == [
        {
            "reason": "no_pod", "gpus": 17, "pods": ["ai/gone"], "pod_count": 1,
            "sentence": "17 GPUs of ai/gone match no workload: the cluster has no such pod", "remedy": gpus.remedy,
        }
    ]  # fmt: skip


async def test_unknown_unmatched_gpus_are_null_and_not_none(site):
    assert (await rows_with(site, lambda: None))["gpus_unmatched"] is None
    assert (await rows_with(site, tuple))["gpus_unmatched"] == []


async def rows_with(site, unmatched):
    rows = Rows(lambda: site.publisher.board, site.health, lambda: site.now, RowSources(unmatched=unmatched))
    return json.loads((await rows.get(make_mocked_request("GET", "/api/v1/rows"))).body)

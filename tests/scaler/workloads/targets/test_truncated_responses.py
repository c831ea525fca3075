"""A truncated response is never accepted: a scrape must not read `waiting 12` from `waiting 123`."""

import gzip

import pytest

from exporter.model import Credentials, Failure, FailureKind

ANY = Credentials()


def chunked(body):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:30], body[30:])) + b"0\r\n\r\n"


# name -> body to (bytes on the wire, header lines)
FRAMINGS = {
    "length": lambda body: (body, [f"Content-Length: {len(body)}"]),
    "chunks": lambda body: (chunked(body), ["Transfer-Encoding: chunked"]),
    "gzip and length": lambda body: (
        gzip.compress(body),
        [f"Content-Length: {len(gzip.compress(body))}", "Content-Encoding: gzip"],
    ),
    "gzip and chunks": lambda body: (
        chunked(gzip.compress(body)),
        ["Transfer-Encoding: chunked", "Content-Encoding: gzip"],
    ),
    "gzip until the end": lambda body: (gzip.compress(body), ["Content-Encoding: gzip"]),
}


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("framing", FRAMINGS)
async def test_response_cut_anywhere_is_a_failure(http, raw, response, page, framing, then):
    body, headers = FRAMINGS[framing](page)
    whole = response(body, *headers)
    for cut in range(len(whole)):
        raw.respond_with(whole[:cut], then=then)
        outcome = await http.fetch(raw.url, ANY)
        if framing == "gzip until the end" and cut == len(response(b"", *headers)):
            assert outcome == b"", cut  # an empty body, not a truncated one
            continue
        assert isinstance(outcome, Failure), (cut, outcome)
        assert outcome.kind is FailureKind.REFUSED, (cut, outcome)
    raw.respond_with(whole)
    assert await http.fetch(raw.url, ANY) == page


async def test_gzip_body_cut_before_its_framing_is_a_failure(http, raw, response, page):
    """A proxy may frame what it received, and then the length of half a body is correct."""
    packed = gzip.compress(page)
    for cut in range(1, len(packed)):
        raw.respond_with(response(packed[:cut], f"Content-Length: {cut}", "Content-Encoding: gzip"), then="keep")
        assert isinstance(await http.fetch(raw.url, ANY), Failure), cut


async def test_bytes_after_the_length_do_not_shift_into_the_next_response(http, raw, response, page):
    """The surplus may fail this scrape, but is never read as the beginning of another response."""
    raw.respond_with(
        response(page + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n", f"Content-Length: {len(page)}"), "keep"
    )
    for _ in range(5):
        outcome = await http.fetch(raw.url, ANY)
        assert outcome == page or isinstance(outcome, Failure)


async def test_line_is_never_halved_if_only_closing_ends_the_response(http, raw, response, page):
    """HTTP/1.0 without a length: a body cut between two lines cannot be distinguished from a complete one."""
    lines = page.splitlines(keepends=True)
    for body in (page, lines[0]):
        raw.respond_with(response(body, version="1.0"))
        assert await http.fetch(raw.url, ANY) == body
    for cut in range(1, len(lines[0])):
        raw.respond_with(response(page[:cut], version="1.0"))
        assert isinstance(await http.fetch(raw.url, ANY), Failure), cut

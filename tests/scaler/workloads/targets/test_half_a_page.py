"""Half a page is never a page, wherever it is cut: `waiting 12` of `waiting 123` is a number nobody said."""

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
async def test_a_page_cut_anywhere_is_a_failure(http, raw, answer, page, framing, then):
    body, headers = FRAMINGS[framing](page)
    whole = answer(body, *headers)
    for cut in range(len(whole)):
        raw.says(whole[:cut], then=then)
        outcome = await http.fetch(raw.url, ANY)
        if framing == "gzip until the end" and cut == len(answer(b"", *headers)):
            assert outcome == b"", cut  # an empty page, which is nobody's half
            continue
        assert isinstance(outcome, Failure), (cut, outcome)
        assert outcome.kind is FailureKind.REFUSED, (cut, outcome)
    raw.says(whole)
    assert await http.fetch(raw.url, ANY) == page


async def test_a_gzip_page_that_was_cut_before_it_was_framed_is_a_failure(http, raw, answer, page):
    """A proxy may frame whatever it got, and then the length is honest about half a page."""
    packed = gzip.compress(page)
    for cut in range(1, len(packed)):
        raw.says(answer(packed[:cut], f"Content-Length: {cut}", "Content-Encoding: gzip"), then="keep")
        assert isinstance(await http.fetch(raw.url, ANY), Failure), cut


async def test_a_page_longer_than_its_length_says_does_not_shift_into_the_next_answer(http, raw, answer, page):
    """The surplus may cost this scrape or not, but it is never read as the beginning of another page."""
    raw.says(
        answer(page + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n", f"Content-Length: {len(page)}"), "keep"
    )
    for _ in range(5):
        outcome = await http.fetch(raw.url, ANY)
        assert outcome == page or isinstance(outcome, Failure)


async def test_where_only_closing_ends_a_page_a_line_is_never_halved(http, raw, answer, page):
    """HTTP/1.0 without a length: nothing tells a page cut between two lines from a whole one."""
    lines = page.splitlines(keepends=True)
    for body in (page, lines[0]):
        raw.says(answer(body, version="1.0"))
        assert await http.fetch(raw.url, ANY) == body
    for cut in range(1, len(lines[0])):
        raw.says(answer(page[:cut], version="1.0"))
        assert isinstance(await http.fetch(raw.url, ANY), Failure), cut

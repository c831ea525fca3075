"""Reads CSV files as published, and as written by hand."""

import gzip

import pytest

from scaler.replay.traces import load

AZURE_2023 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:05.0000000,110,27
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5184005,ChatGPT,472,18,490,Conversation log
5184045,ChatGPT,1087,230,1317,Conversation log
5184106,ChatGPT,0,0,0,Conversation log
5184118,GPT-4,417,276,693,API log
"""


def test_azure_2023_timestamps_are_seconds_from_the_first_request(write, rows):
    assert rows(write("a.csv", AZURE_2023)) == [(0.0, 4808, 10), (0.052, 3180, 8), (1.02004, 110, 27)]


def test_azure_2024_timestamps_have_an_offset_and_an_optional_fraction(write, rows):
    assert rows(write("a.csv", AZURE_2024)) == [(0.0, 2162, 5), (0.99007, 2399, 6)]


def test_burstgpt_begins_with_its_first_request_and_notes_failed_ones(write, rows):
    path = write("b.csv", BURSTGPT)
    assert rows(path) == [(0.0, 472, 18), (40.0, 1087, 230), (113.0, 417, 276)]
    assert load(path).notes == (f"{path}: 1 failed requests (0 response tokens) left out",)


def test_newer_burstgpt_files_have_two_more_columns(write, rows):
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "61.0,a7,3.4,GPT-4,9,8,17,Conversation log\n"
    )
    assert rows(write("b.csv", text)) == [(0.0, 9, 8)]


@pytest.mark.parametrize("header", ["", "t,input,output\n", "time , Prompt,output_tokens\n", '"t","input","output"\n'])
def test_plain_table_needs_no_header_and_keeps_its_times(write, rows, header):
    assert rows(write("p.csv", f"{header}60.5,100,7\n61,20,300\n")) == [(60.5, 100, 7), (61.0, 20, 300)]


def test_columns_are_found_by_name_in_any_order(write, rows):
    assert rows(write("p.csv", "output,user,t,input\n7,ann,60.5,100\n")) == [(60.5, 100, 7)]


def test_posix_seconds_begin_with_the_first_request(write, rows):
    assert rows(write("p.csv", "1700000000,1,2\n1700000000.5,3,4\n")) == [(0.0, 1, 2), (0.5, 3, 4)]


def test_milliseconds_since_1970_are_refused(write, refusal):
    assert "p.csv:1: the time must be seconds" in refusal(write("p.csv", "1700000000000,1,2\n"))


def test_invalid_row_is_skipped_and_counted_with_the_position_of_the_first(write, rows):
    path = write("p.csv", "t,input,output\n1,10,2\n2,many,2\n3,10\n\n4,-1,2\n5,nan,2\n6,10,2\n")
    assert rows(path) == [(1.0, 10, 2), (6.0, 10, 2)]
    expected = f"4 bad rows left out, the first {path}:3: could not convert string to float: 'many', got '2,many,2'"
    assert load(path).notes == (expected,)


def test_file_without_a_valid_row_is_an_error_with_the_reason(write, refusal):
    path = write("p.csv", "t,input,output\nx,1,2\n")
    assert refusal(path).startswith(f"{path}: has no request; 1 bad row left out, the first {path}:2: ")
    assert refusal(write("q.csv", "t,input,output\n")).endswith("q.csv: has no request")


def test_unsorted_rows_are_sorted_with_a_note(write, rows):
    path = write("p.csv", "3,30,1\n1,10,1\n2,20,1\n")
    assert rows(path) == [(1.0, 10, 1), (2.0, 20, 1), (3.0, 30, 1)]
    assert load(path).notes == ("p: 1 of 3 rows were out of order, and were put in order",)


def test_gzip_file_is_read_under_any_name(write, rows):
    path = write("p.csv", gzip.compress(AZURE_2023.encode()))
    assert len(rows(path)) == 3
    assert load(path).load.name == "p"
    assert load(write("conv.csv.gz", gzip.compress(AZURE_2023.encode()))).load.name == "conv"


def test_truncated_gzip_file_is_an_error(write, refusal):
    packed = gzip.compress("".join(f"{second},1,{second * 7919}\n" for second in range(9000)).encode())
    assert "its gzip is broken or cut short" in refusal(write("p.gz", packed[: len(packed) // 2]))


def test_windows_file_with_a_byte_order_mark_is_read(write, rows):
    assert rows(write("p.csv", b"\xef\xbb\xbft,input,output\r\n1,2,3\r\n")) == [(1.0, 2, 3)]


def test_unknown_format_is_an_error_with_the_valid_forms(write, refusal):
    assert refusal(write("x.csv", "\nhello, world\n")).endswith("got 'hello, world'")
    assert "x.csv:2: is no load we know" in refusal(write("x.csv", "\nhello, world\n"))
    assert refusal(write("e.csv", "")).endswith("e.csv: is empty")


def test_invalid_row_in_a_large_file_is_reported_with_its_line(write):
    lines = [f"{second},1,2" for second in range(150_000)]
    lines[120_000] = "oops"
    recorded = load(write("p.csv", "\n".join(lines)))
    assert len(recorded.load.at) == 149_999
    assert "p.csv:120001: " in recorded.notes[0]

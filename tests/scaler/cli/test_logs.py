"""Logs are events with fields on standard error, in the configured format."""

import json

import pytest
import structlog

from scaler import logs


@pytest.fixture(autouse=True)
def reset():
    yield
    structlog.reset_defaults()


def test_json_is_one_object_per_line(capsys):
    logs.configure("json", "info")
    structlog.get_logger().warning("scrape failed", target="http://x", took_s=0.8)
    out, err = capsys.readouterr()
    assert out == ""
    entry = json.loads(err)
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"event": "scrape failed", "level": "warning", "target": "http://x", "took_s": 0.8}


def test_auto_is_json_without_a_terminal(capsys):
    logs.configure("auto", "info")
    structlog.get_logger().info("listening")
    assert json.loads(capsys.readouterr().err)["event"] == "listening"


def test_console_is_not_json(capsys):
    logs.configure("console", "info")
    structlog.get_logger().info("listening", http=8080)
    err = capsys.readouterr().err
    assert "listening" in err
    assert not err.startswith("{")


def test_events_below_the_level_are_not_logged(capsys):
    logs.configure("json", "warning")
    structlog.get_logger().info("listening")
    structlog.get_logger().warning("draining")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["draining"]


def test_exception_is_one_line_with_its_traceback_in_a_field(capsys):
    logs.configure("json", "info")
    try:
        int("a bug")
    except ValueError:
        structlog.get_logger().exception("tick failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: " in json.loads(line)["exception"]


def test_configuration_warnings_share_one_event_name(capsys):
    logs.configure("json", "info")
    logs.say_warnings(["config.yaml:1:1: warning: one", "config.yaml:2:1: warning: two"])
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [entry["event"] for entry in entries] == ["configuration", "configuration"]
    assert [entry["problem"][-3:] for entry in entries] == ["one", "two"]


def test_console_prints_no_control_characters(capsys):
    logs.configure("console", "info")
    structlog.get_logger().info("scrape failed", detail="a\x1b]0;title\x07b", took_s=0.5)
    err = capsys.readouterr().err
    assert "\x1b]" not in err
    assert "\x07" not in err
    assert "0;title" in err

"""Checks when a configuration file counts as changed."""

import os

from scaler.config.loader import FileWatch


def test_unmodified_file_has_not_changed(tmp_path):
    (tmp_path / "config.yaml").write_text("a")
    watch = FileWatch(tmp_path / "config.yaml")
    assert [watch.changed() for _ in range(3)] == [False, False, False]


def test_file_being_written_has_changed_once_it_is_stable(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("a")
    watch = FileWatch(file)
    results = []
    for text in ("ab", "abc"):
        file.write_text(text)
        results.append(watch.changed())
    assert [*results, watch.changed(), watch.changed()] == [False, False, True, False]


def test_link_to_another_directory_is_a_change(tmp_path):
    """Kubelet switches a mounted ConfigMap this way."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.yaml").write_text("same")
        os.utime(tmp_path / version / "config.yaml", (1000, 1000))
    (tmp_path / "..data").symlink_to("one")
    watch = FileWatch(tmp_path / "..data" / "config.yaml")
    (tmp_path / "turned").symlink_to("two")
    (tmp_path / "turned").rename(tmp_path / "..data")
    assert [watch.changed(), watch.changed(), watch.changed()] == [False, True, False]


def test_deleted_file_has_not_changed_until_it_returns(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("a")
    watch = FileWatch(file)
    file.unlink()
    assert [watch.changed(), watch.changed()] == [False, False]
    file.write_text("another")
    assert [watch.changed(), watch.changed()] == [False, True]

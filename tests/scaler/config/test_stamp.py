"""When a configuration file counts as another one."""

import os

from scaler.config.loader import FileWatch


def test_a_file_that_stays_the_same_has_not_changed(tmp_path):
    (tmp_path / "config.yaml").write_text("a")
    watch = FileWatch(tmp_path / "config.yaml")
    assert [watch.changed() for _ in range(3)] == [False, False, False]


def test_a_file_that_is_being_written_has_changed_once_it_stands_still(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("a")
    watch = FileWatch(file)
    said = []
    for text in ("ab", "abc"):
        file.write_text(text)
        said.append(watch.changed())
    assert [*said, watch.changed(), watch.changed()] == [False, False, True, False]


def test_a_link_that_is_turned_to_another_directory_is_another_file(tmp_path):
    """As kubelet does with a mounted ConfigMap."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.yaml").write_text("same")
        os.utime(tmp_path / version / "config.yaml", (1000, 1000))
    (tmp_path / "..data").symlink_to("one")
    watch = FileWatch(tmp_path / "..data" / "config.yaml")
    (tmp_path / "turned").symlink_to("two")
    (tmp_path / "turned").rename(tmp_path / "..data")
    assert [watch.changed(), watch.changed(), watch.changed()] == [False, True, False]


def test_a_file_that_is_gone_has_not_changed_and_its_return_is_seen(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("a")
    watch = FileWatch(file)
    file.unlink()
    assert [watch.changed(), watch.changed()] == [False, False]
    file.write_text("another")
    assert [watch.changed(), watch.changed()] == [False, True]

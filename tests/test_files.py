from pathlib import Path

import pytest

from anyrnn._files import written_aside


def test_replaces_the_file_when_all_is_written(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")
    with written_aside(target) as aside:
        aside.write_text("new")
        assert target.read_text() == "old"
        assert aside.parent == tmp_path
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_leaves_the_old_file_and_nothing_else_when_writing_fails(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")

    def write() -> None:
        with written_aside(target) as aside:
            aside.write_text("half of the ne")
            raise error

    with pytest.raises(error):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "file.txt"
    with written_aside(target) as one, written_aside(target) as two:
        one.write_text("one")
        two.write_text("two")
    assert target.read_text() == "one"
    assert list(target.parent.iterdir()) == [target]

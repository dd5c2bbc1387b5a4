"""The folder of several processes' counts: nothing stays of it, whoever ends how."""

from pathlib import Path

from agentcache.router.counted import OWNED, PREFIX, counting_folder


def test_it_is_gone_with_its_block(tmp_path: Path) -> None:
    with counting_folder(tmp_path) as folder:
        assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
        (folder / "counter_1.db").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_router_left_is_removed_by_the_next_and_nothing_else(tmp_path: Path) -> None:
    left, strange, other = tmp_path / f"{PREFIX}left", tmp_path / f"{PREFIX}made", tmp_path / "other"
    for folder in (left, strange, other):
        folder.mkdir()
        (folder / "counter_1.db").write_bytes(b"x")
    (left / OWNED).touch()
    (other / OWNED).touch()
    with counting_folder(tmp_path) as one, counting_folder(tmp_path) as two:
        assert sorted(tmp_path.iterdir()) == sorted([one, two, strange, other])
    assert sorted(tmp_path.iterdir()) == sorted([strange, other])

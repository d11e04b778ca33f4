from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest

from haclient.analysis.io import tail
from haclient.analysis.io.tail import Tail


def taken(segments: Path) -> bytes:
    """Return all copied lines, in the order of the sources."""
    paths = sorted(segments.glob("*.jsonl"), key=tail._span)
    return b"".join(path.read_bytes() for path in paths)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    return tmp_path / "segments"


def test_whole_lines_are_copied_and_the_rest_waits(folder: Path, segments: Path) -> None:
    copier = Tail(folder, segments)
    (folder / "a.jsonl").write_bytes(b"one\ntw")
    copier.copy()
    assert taken(segments) == b"one\n"

    with (folder / "a.jsonl").open("ab") as file:
        file.write(b"o\nthree")
    copier.copy()
    assert taken(segments) == b"one\ntwo\n"


def test_a_first_line_that_is_not_all_there_waits(folder: Path, segments: Path) -> None:
    (folder / "a.jsonl").write_bytes(b"on")
    assert Tail(folder, segments).copy() == 0


def test_the_last_line_of_a_dead_writer_is_taken_as_it_is(folder: Path, segments: Path) -> None:
    (folder / "a.jsonl").write_bytes(b"one\ntw")
    Tail(folder, segments, torn_after=0.0).copy()
    assert taken(segments) == b"one\ntw"


def test_a_rotated_file_goes_on_where_the_plain_one_was_left(folder: Path, segments: Path) -> None:
    plain = folder / "deep" / "a.jsonl"
    plain.parent.mkdir()
    plain.write_bytes(b"one\ntwo\n")
    copier = Tail(folder, segments)
    copier.copy()

    (folder / "deep" / "a.jsonl.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    plain.unlink()
    copier.copy()
    assert taken(segments) == b"one\ntwo\nthree\n"
    assert copier.copy() == 0


def test_a_new_file_of_an_old_name_is_another_source(folder: Path, segments: Path) -> None:
    copier = Tail(folder, segments)
    (folder / "a.jsonl").write_bytes(b"one\ntwo\n")
    copier.copy()
    (folder / "a.jsonl").write_bytes(b"three\n")
    copier.copy()
    assert sorted(taken(segments).split()) == [b"one", b"three", b"two"]


def test_a_compressed_file_that_is_cut_off_gives_its_whole_lines(folder: Path, segments: Path) -> None:
    lines = b"".join(
        b"%d %s\n" % (number, random.Random(number).randbytes(8).hex().encode()) for number in range(5000)
    )
    whole = gzip.compress(lines)
    (folder / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    copier = Tail(folder, segments)
    copier.copy()
    begun = taken(segments)
    assert begun
    assert lines.startswith(begun)
    assert begun.endswith(b"\n")

    (folder / "a.jsonl.gz").write_bytes(whole)
    copier.copy()
    assert taken(segments) == lines


def test_a_big_file_is_cut_into_segments(
    folder: Path, segments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(tail, "_CHUNK", 30)
    lines = b"".join(b"line %d\n" % number for number in range(200))
    (folder / "a.jsonl").write_bytes(lines)
    assert Tail(folder, segments).copy() > 10
    assert taken(segments) == lines


def test_what_was_read_is_forgotten_and_not_copied_again(folder: Path, segments: Path) -> None:
    path = folder / "a.jsonl"
    copier = Tail(folder, segments)
    for text in (b"one\n", b"one\ntwo\n", b"one\ntwo\nthree\n"):
        path.write_bytes(text)
        copier.copy()
    copier.forget()
    assert taken(segments) == b"three\n"
    assert Tail(folder, segments).copy() == 0


@pytest.mark.parametrize("seed", range(20))
def test_no_line_is_lost_or_repeated_by_a_kill(
    folder: Path, segments: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Only the rename counts: a kill is before it or after it."""
    prng = random.Random(seed)
    lines = [b"line %d\n" % number for number in range(60)]
    path = folder / "a.jsonl"
    rename = Path.rename

    class KilledError(Exception):
        pass

    def dying(self: Path, target: Path) -> Path:
        when = prng.random()
        if when < 0.2:
            raise KilledError
        renamed = rename(self, target)
        if when < 0.4:
            raise KilledError
        return renamed

    monkeypatch.setattr(Path, "rename", dying)
    written = 0
    while written < len(lines) or taken(segments) != b"".join(lines):
        written = min(len(lines), written + prng.randrange(9))
        path.write_bytes(b"".join(lines[:written]))
        os.utime(path)
        try:
            Tail(folder, segments).copy()
        except KilledError:
            continue
    assert taken(segments) == b"".join(lines)

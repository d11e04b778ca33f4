"""Old telemetry that is removed, and files that are never removed."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from pathlib import Path

import pytest

from broker_stub.telemetry import settings_of
from haclient.telemetry import TelemetrySettings
from haclient.telemetry.files import Files
from haclient.telemetry.retention import remove_old

DAY = 86400.0
NUMBERS = itertools.count(1)


def old(
    folder: Path, age: float, *, size: int = 10, service: str = "orders", ending: str = ".jsonl.gz"
) -> Path:
    """Make a file of another process of the service, last written this many seconds ago."""
    path = folder / f"{service}-{uuid.uuid4()}-{os.getpid()}-{next(NUMBERS)}{ending}"
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    return path


def left(folder: Path, settings: TelemetrySettings, *spared: Path) -> set[Path]:
    remove_old(settings, "orders", set(spared))
    return set(folder.iterdir())


def test_the_oldest_go_until_the_rest_fits(tmp_path: Path) -> None:
    files = [old(tmp_path, age=days * DAY, size=40) for days in (1, 2, 3, 4)]
    assert left(tmp_path, TelemetrySettings(tmp_path, keep_size=100)) == set(files[:2])


def test_what_is_too_old_goes_whatever_there_is_room_for(tmp_path: Path) -> None:
    young, *_ = [old(tmp_path, age=days * DAY) for days in (1, 8, 9)]
    killed = old(tmp_path, age=8 * DAY, ending=".jsonl")
    torn = old(tmp_path, age=8 * DAY, ending=".jsonl.gz.tmp")
    torn = torn.rename(torn.with_name(f".{torn.name}"))
    settings = TelemetrySettings(tmp_path, keep_seconds=7 * DAY)
    assert left(tmp_path, settings) == {young}
    assert not killed.exists()


def test_without_a_bound_everything_stays(tmp_path: Path) -> None:
    files = {old(tmp_path, age=days * DAY) for days in range(3000)}
    assert left(tmp_path, TelemetrySettings(tmp_path)) == files


def test_nothing_of_others_goes(tmp_path: Path) -> None:
    """Cases: another service, one with a similar prefix, and files that only look like telemetry."""
    others = {old(tmp_path, age=9 * DAY, service=name) for name in ("bills", "orders-eu", "xorders")}
    for name in ("orders-1.jsonl.gz", "orders.jsonl", "notes.txt"):
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (0, 0))
        others.add(tmp_path / name)
    (tmp_path / f"orders-{uuid.uuid4()}-1-1.jsonl.gz").mkdir()  # cannot be removed as a file
    others |= set(tmp_path.iterdir())
    assert left(tmp_path, TelemetrySettings(tmp_path, keep_size=1, keep_seconds=1)) == others


def test_what_may_be_written_now_stays(tmp_path: Path) -> None:
    written = old(tmp_path, age=10, ending=".jsonl")
    own = old(tmp_path, age=9 * DAY, ending=".jsonl")
    settings = TelemetrySettings(tmp_path, rotate_seconds=3600, keep_size=1, keep_seconds=1)
    assert left(tmp_path, settings, own) == {written, own}


def test_a_directory_that_is_gone_is_no_error(tmp_path: Path) -> None:
    remove_old(TelemetrySettings(tmp_path / "gone", keep_size=1), "orders", set())


def test_a_writer_stays_within_its_bounds_for_ever(tmp_path: Path) -> None:
    """They cover the file being written, a file being compressed, and the kept full ones."""
    settings = TelemetrySettings(tmp_path, rotate_size=1000, keep_size=5000)
    stem = f"orders-{uuid.uuid4()}-{os.getpid()}"
    files = Files(settings, "orders", stem, itertools.count(1))
    for now in range(1000):
        files.write(os.urandom(500), now)
        for _ in range(4):
            files.compress(now)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 5000 + 3 * 1100
    files.finish()
    assert 4 <= len(list(tmp_path.iterdir())) <= 8


@pytest.mark.parametrize("name", ["keep_size", "keep_seconds"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_bound_is_a_number_above_0(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        TelemetrySettings(tmp_path, **{name: value})  # type: ignore[arg-type]


def test_a_member_has_both_bounds(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert settings.keep_size is not None
    assert settings.keep_seconds is not None

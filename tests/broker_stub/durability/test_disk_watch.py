"""The free space at which a member takes each measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.cli.cluster_options import disk_limits
from broker_stub.durability.disk_watch import MIB, NO_LIMITS, DiskLevel, DiskLimits, DiskWatch
from broker_stub.store import DiskUsage
from tests.broker_stub.commands import run

LIMITS = DiskLimits(warn=300, hold=200, stop=100)


def room(amount: int, refused: str = "") -> DiskUsage:
    return DiskUsage(amount, amount, refused)


@pytest.mark.parametrize(
    ("amount", "level"),
    [(300, "OK"), (299, "WARN"), (200, "WARN"), (199, "HOLD"), (100, "HOLD"), (99, "STOP")],
)
def test_each_level_begins_below_its_limit(amount: int, level: str) -> None:
    watch = DiskWatch(LIMITS, "here")
    assert watch.update(room(amount)) == (level != "OK")
    assert watch.level.name == level


def test_a_level_ends_with_a_quarter_more_room_and_one_after_the_other() -> None:
    watch = DiskWatch(LIMITS, "here")
    seen = []
    for amount in (99, 124, 125, 249, 250, 374, 375):
        watch.update(room(amount))
        seen.append(watch.level.name)
    assert seen == ["STOP", "STOP", "HOLD", "HOLD", "WARN", "WARN", "OK"]


def test_what_the_disk_has_refused_stops_the_member_however_much_room_there_seems_to_be() -> None:
    watch = DiskWatch(NO_LIMITS, "here")
    assert watch.update(room(2**40, "the disk of /x is full"))
    status = watch.status()
    assert status is not None
    assert (status["level"], "the disk of /x is full" in status["text"]) == ("stop", True)
    assert watch.update(room(0))
    assert watch.level is DiskLevel.OK, "no level is set"


@given(st.lists(st.integers(0, 500)))
def test_more_room_is_never_a_worse_level(amounts: list[int]) -> None:
    watch = DiskWatch(LIMITS, "here")
    before = 500
    for amount in amounts:
        level = watch.level
        watch.update(room(amount))
        if amount >= before:
            assert watch.level <= level
        else:
            assert watch.level >= DiskWatch(LIMITS, "").level
        before = amount


@given(
    st.integers(0, 2**50),
    *[st.none() | st.integers(0, 2**50)] * 3,
)
def test_the_defaults_fit_any_file_system_and_each_other(
    total: int, warn: int | None, hold: int | None, stop: int | None
) -> None:
    wanted = [each for each in (warn, hold, stop) if each is not None]
    try:
        limits = DiskLimits.of(total, warn, hold, stop)
    except ValueError:
        assert wanted != sorted(wanted, reverse=True)
        return
    assert limits.warn >= limits.hold >= limits.stop >= 0
    for given_limit, limit in zip((warn, hold, stop), (limits.warn, limits.hold, limits.stop), strict=True):
        assert given_limit in (None, limit)
    assert limits.reserve <= limits.stop // 2
    if not wanted:
        assert limits.warn <= total / 5


def test_the_limits_of_a_store_that_is_not_there_yet_are_those_of_its_file_system(tmp_path: Path) -> None:
    assert disk_limits(str(tmp_path / "not" / "yet"), None, 64, None).hold == 64 * MIB
    assert disk_limits("memory", None, None, None) == NO_LIMITS


@pytest.mark.parametrize(
    "options",
    [
        ("--disk-stop", "2", "--disk-hold", "1"),
        ("--disk-warn", "1", "--disk-hold", "2"),
        ("--disk-stop", "-1"),
    ],
)
async def test_levels_in_the_wrong_order_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    cluster = (
        "--name",
        "a",
        "--arbiter",
        f"directory:{tmp_path}",
        "--password-file",
        __file__,
        "--member",
        "127.0.0.1:1",
    )
    result = await run("serve", *cluster, "--store", str(tmp_path / "store"), *options)
    assert result.exit_code == 2
    assert "--disk-" in result.stderr

"""Grids are computed by one process or two, only once, and completed after a crash."""

from __future__ import annotations

import json
import multiprocessing
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.grid import run as module
from benchmarks.grid.__main__ import main
from benchmarks.grid.cache import Cache, _sources
from benchmarks.grid.cells import KINDS, cells
from benchmarks.grid.presets import PRESETS, Preset
from benchmarks.grid.run import Judged, grid
from haclient.discovery import polling
from haclient.retry.policy import Policy

SMALL = cells("whole", {"clients": [5], "outage": [0.3], "members": [1], "kind": ["reset", "silent"]})
OURS = {"haclient": Policy()}


def computed(
    path: Path | None = None, jobs: int = 1, policy: Policy | None = None
) -> tuple[list[Judged], int]:
    """Return the cells, and the number of policies of cells that were computed for them."""
    told: list[tuple[int, int]] = []
    with Cache(path) as cache:
        found = grid(
            SMALL,
            OURS if policy is None else {"haclient": policy},
            cache=cache,
            jobs=jobs,
            progress=lambda done, total: told.append((done, total)),
        )
    assert all(total == len(SMALL) * (len(PRESETS) + 1) for _, total in told)
    return found, len(told)


def test_every_policy_is_in_every_cell() -> None:
    found, count = computed()
    assert count == 2 * (len(PRESETS) + 1)
    assert [judged.cell for judged in found] == SMALL
    assert all(set(judged.presets) == set(PRESETS) and set(judged.ours) == {"haclient"} for judged in found)
    assert all(judged.ours["haclient"].attempts >= 1 for judged in found)


def test_two_processes_find_the_same_as_one() -> None:
    assert computed(jobs=2) == computed(jobs=1)


def test_what_was_computed_is_not_computed_again(tmp_path: Path) -> None:
    first, _ = computed(tmp_path / "new" / "cache.jsonl")
    assert computed(tmp_path / "new" / "cache.jsonl") == (first, 0)


def test_after_a_crash_only_the_rest_is_computed(tmp_path: Path) -> None:
    """The file has a line that is no result, and ends in the middle of a line."""
    path = tmp_path / "cache.jsonl"
    first, count = computed(path)
    lines = path.read_text().splitlines(keepends=True)
    results = [line for line in lines if line.strip()]
    path.write_text("".join(results[:7]) + '{"key": 3}\n[1]\n' + results[7][:40])
    assert computed(path) == (first, count - 7)
    assert computed(path) == (first, 0)


def test_another_policy_is_computed_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    computed(path)
    _, count = computed(path, policy=Policy(backoff_max=1.0))
    assert count == len(SMALL)


def test_the_code_of_the_client_has_that_of_folders_below() -> None:
    adaptive = Path(polling.__file__).with_name("by_answer.py").read_bytes()
    assert adaptive in set(_sources(Policy))
    assert adaptive not in set(_sources(Preset))


def test_changed_code_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cache.jsonl"
    _, count = computed(path)
    monkeypatch.setattr("benchmarks.grid.cache._sources", lambda _: [b"other code"])
    assert computed(path)[1] == count


def test_a_grid_that_is_interrupted_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache.jsonl"
    count = 0

    def interrupted(scenario: object, client: object) -> object:
        nonlocal count
        count += 1
        if count > 3 * 5:
            raise KeyboardInterrupt
        return simulate(scenario, client)  # type: ignore[arg-type]

    simulate = module.simulate
    monkeypatch.setattr(module, "simulate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        computed(path)
    monkeypatch.undo()
    assert computed(path)[1] == len(SMALL) * (len(PRESETS) + 1) - 3


def test_a_grid_that_is_interrupted_leaves_no_process(tmp_path: Path) -> None:
    """The processes of the grid ignore the Ctrl-C of a terminal, or each would print a traceback."""
    blocked = []

    def interrupt(done: int, total: int) -> None:
        for process in multiprocessing.active_children():
            status = Path(f"/proc/{process.pid}/status").read_text()
            blocked.append(int(status.split("SigBlk:")[1].split()[0], 16))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Cache(tmp_path / "cache.jsonl") as cache:
        grid(SMALL, OURS, cache=cache, jobs=2, progress=interrupt)
    assert len(blocked) == 2
    assert all(mask & 1 << signal.SIGINT - 1 for mask in blocked)
    assert multiprocessing.active_children() == []


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["judge", *arguments])


ONE = ["--sweep", "clients=5", "--sweep", "outage=0.3", "--sweep", "members=1", "--jobs", "1"]


@pytest.mark.slow
def test_the_command_prints_the_table_and_writes_files(tmp_path: Path) -> None:
    png, svg, figures = tmp_path / "a.png", tmp_path / "a.svg", tmp_path / "a.json"
    done = command(*ONE, "--cache", str(tmp_path / "c"), "--plot", str(png), "--json", str(figures))
    assert done.exit_code == 0, done.output
    assert "haclient: " in done.stdout
    assert "SYNs of one client at one address" in done.stdout
    rows = json.loads(figures.read_text())
    assert [(row["kind"], row["clients"]) for row in rows] == [("reset", 5), ("silent", 5), ("dead host", 5)]
    assert set(rows[0]["policies"]) == {"haclient", *PRESETS}
    assert command(*ONE, "--cache", str(tmp_path / "c"), "--plot", str(svg)).exit_code == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


HELD = (1, "silent", 5, 0.3)


def test_a_check_that_finds_what_is_known_says_how_many_cells_are_known_not_to_hold(tmp_path: Path) -> None:
    done = command(*ONE, "--check", "--cache", str(tmp_path / "c"))
    assert done.exit_code == 0, done.output
    assert "checked: 0 cells hold no longer, 0 known not to hold" in done.stdout


def test_a_cell_that_holds_no_longer_ends_a_check_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client meets bars this low."""
    monkeypatch.setattr("benchmarks.grid.bars._SLACK", 0.0)
    monkeypatch.setattr("benchmarks.grid.bars._AS_LATE", 0.1)
    done = command(*ONE, "--check")
    assert done.exit_code == 1, done.output
    assert "HOLDS NO LONGER: 5 clients, one address, silent, outage 0.3 s: the last after" in done.stdout


def test_what_is_known_not_to_hold_is_named_with_its_figures_and_ends_a_check_with_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.grid.bars._SLACK", 0.0)
    monkeypatch.setattr("benchmarks.grid.bars._AS_LATE", 0.1)
    known = {(1, kind, 5, 0.3): "no client is as fast" for kind in KINDS}
    monkeypatch.setattr("benchmarks.grid.known.KNOWN", known)
    monkeypatch.setattr("benchmarks.grid.report.KNOWN", known)
    done = command(*ONE, "--check")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("known not to hold: 5 clients") == 3
    assert "late (no client is as fast)" in done.stdout


def test_a_cell_that_is_known_not_to_hold_and_does_ends_a_check_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.grid.known.KNOWN", {HELD: "nobody knows"})
    done = command(*ONE, "--check")
    assert done.exit_code == 1, done.output
    assert "holds now, take it out of known.py: 5 clients, one address, silent" in done.stdout


def test_strategies_and_options_can_be_judged(tmp_path: Path) -> None:
    done = command(
        *ONE,
        "--sweep",
        "kind=reset",
        "--strategy",
        "full",
        "--strategy",
        "adaptive",
        "--set",
        "backoff_max=1",
        "--json",
        "-",
    )
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert list(row["broken"]) == ["haclient, full", "haclient, adaptive"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--sweep", "backlog=1"],
        ["--sweep", "kind=loud"],
        ["--sweep", "clients=0"],
        ["--html", "a.html"],
        ["--spark"],
        ["--preset", "kafka"],
        ["--park", "outage"],
        ["--jobs", "0"],
        ["--check", "--strategy", "full"],
        ["--check", "--set", "backoff_max=1"],
        ["--check", "--set", "setup_rate=100"],
        ["--check", "--broker", "rabbitmq"],
        ["--set", "clients=5"],
        ["--set", "setup_rate=0"],
        ["small"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(wrong: list[str]) -> None:
    done = command(*wrong)
    assert done.exit_code == 2, done.output

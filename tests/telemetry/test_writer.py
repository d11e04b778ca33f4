"""The writer loses no line without need, whatever happens to process and disk."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from haclient.telemetry import TelemetrySettings, flush, writer
from haclient.telemetry.files import Files
from tests.telemetry.lines import lines, text
from tests.telemetry.numbers import Numbers

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 30.0


def start(folder: Path, count: int, mode: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.telemetry.numbers", str(folder), str(count), mode]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def numbers(folder: Path) -> list[int]:
    return [line["data"]["haclient.sequence"] for line in lines(folder, "alive")]


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


class TestEnds:
    def test_a_process_that_ends_without_closing_anything_loses_nothing(self, tmp_path: Path) -> None:
        assert start(tmp_path, 5000, "return").wait(PATIENCE) == 0
        assert numbers(tmp_path) == list(range(5000))

    def test_threads_that_outlive_the_main_thread_lose_nothing(self, tmp_path: Path) -> None:
        assert start(tmp_path, 500, "exit").wait(PATIENCE) == 3
        assert Counter(numbers(tmp_path)) == dict.fromkeys(range(500), 2)

    def test_what_is_put_after_the_exit_handler_is_written_too(self, tmp_path: Path) -> None:
        assert start(tmp_path, 100, "late").wait(PATIENCE) == 0
        assert numbers(tmp_path) == list(range(101))

    def test_a_killed_process_leaves_at_most_one_torn_line(self, tmp_path: Path) -> None:
        process = start(tmp_path, 0, "forever")
        wait_until(lambda: text(tmp_path).count("\n") > 1000)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        *whole, last = text(tmp_path).split("\n")
        found = [json.loads(line)["data"]["haclient.sequence"] for line in whole]
        assert found == list(range(len(found)))
        assert not last.endswith("}")


class TestForks:
    def test_a_child_has_its_own_file_instance_and_thread(self, tmp_path: Path) -> None:
        assert start(tmp_path, 300, "fork").wait(PATIENCE) == 0
        found = lines(tmp_path)
        by_instance = Counter(line["data"]["service.instance.id"] for line in found)
        assert sorted(by_instance.values()) == [300, 600]
        assert len(list(tmp_path.glob("*.jsonl"))) == 2
        for path in tmp_path.glob("*.jsonl"):
            assert len({json.loads(line)["source"] for line in path.read_text().splitlines()}) == 1

    def test_children_of_multiprocessing_lose_nothing(self, tmp_path: Path) -> None:
        assert start(tmp_path, 300, "multiprocessing").wait(PATIENCE) == 0
        assert Counter(numbers(tmp_path)) == dict.fromkeys(range(300), 2)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_fork_in_the_middle_of_everything_never_hangs_the_child(self, tmp_path: Path) -> None:
        settings = TelemetrySettings(tmp_path, rotate_size=20_000)
        source = Numbers(settings)
        over = threading.Event()

        put: list[int] = []

        def feed() -> None:
            while not over.is_set():
                source.put(len(put))
                put.append(len(put))
                if len(put) % 64 == 0:
                    time.sleep(0.001)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            for _ in range(30):
                pid = os.fork()
                if pid == 0:
                    for number in range(10):
                        source.put(1_000_000 + number)
                    os._exit(0 if flush(PATIENCE) else 1)
                assert os.waitpid(pid, 0)[1] == 0
        finally:
            over.set()
            feeder.join()
        flush()
        found = numbers(tmp_path)
        assert Counter(each for each in found if each >= 1_000_000) == {1_000_000 + n: 30 for n in range(10)}
        mine = [each for each in found if each < 1_000_000]
        assert len(set(mine)) == len(mine)
        assert len(put) - len(mine) == source.dropped  # on a slow machine the queue may be full for a moment


class TestRotation:
    def test_several_threads_under_load_lose_nothing_over_many_files(self, tmp_path: Path) -> None:
        settings = TelemetrySettings(tmp_path, rotate_size=50_000)
        sources = [Numbers(settings, connection) for connection in range(4)]

        def feed(source: Numbers) -> None:
            for number in range(3000):
                source.put(number)

        threads = [threading.Thread(target=feed, args=(source,)) for source in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert flush(PATIENCE)
        wait_until(lambda: len(list(tmp_path.glob("*.jsonl"))) <= 1)
        assert not list(tmp_path.glob(".*"))
        assert len(list(tmp_path.glob("*.jsonl.gz"))) > 10
        found = lines(tmp_path)
        assert text(tmp_path).count("\n") == len(found) == 12_000
        for source in sources:
            mine = [
                each["data"]
                for each in found
                if each["data"]["haclient.connection.number"] == source.connection
            ]
            assert [each["haclient.sequence"] for each in mine] == list(range(3000))

    def test_a_quiet_file_is_compressed_when_its_time_is_over(self, tmp_path: Path) -> None:
        source = Numbers(TelemetrySettings(tmp_path, rotate_seconds=0.05))
        source.put(1)
        wait_until(lambda: bool(list(tmp_path.glob("*.jsonl.gz"))) and not list(tmp_path.glob("*.jsonl")))
        source.put(2)
        assert flush(PATIENCE)
        assert numbers(tmp_path) == [1, 2]

    def test_readers_never_see_half_a_compressed_file(self, tmp_path: Path) -> None:
        settings = TelemetrySettings(tmp_path, rotate_size=1)
        files = Files(settings, "x", "x", iter(range(1, 10)))
        block = b"".join(
            b'{"number": %d, "noise": "%s"}\n' % (n, os.urandom(40).hex().encode()) for n in range(9000)
        )
        files.write(block, 0.0)
        files.write(block, 0.0)
        steps = 0
        while list(tmp_path.glob("x-1.jsonl")):
            assert text(tmp_path).encode() == block + block
            files.compress(0.0)
            steps += 1
        assert steps > 3
        assert text(tmp_path).encode() == block + block
        files.forget()

    def test_a_file_that_is_half_compressed_at_the_end_stays_plain(self, tmp_path: Path) -> None:
        files = Files(TelemetrySettings(tmp_path, rotate_size=1), "x", "x", iter(range(1, 10)))
        files.write(b"x" * 1_000_000, 0.0)
        files.write(b"y", 0.0)
        for _ in range(2):
            files.compress(0.0)
        assert [path.name for path in tmp_path.glob(".*")] == [".x-1.jsonl.gz.tmp"]
        files.finish()
        files.compress(0.0)
        assert {path.name for path in tmp_path.iterdir()} == {"x-1.jsonl", "x-2.jsonl"}
        assert text(tmp_path) == "x" * 1_000_000 + "y"
        files.forget()

    @pytest.mark.parametrize(("umask", "folder", "file"), [(0, 0o750, 0o640), (0o077, 0o700, 0o600)])
    def test_only_the_owner_and_the_group_read_files_plain_or_compressed(
        self, tmp_path: Path, umask: int, folder: int, file: int
    ) -> None:
        made = tmp_path / "made"
        before = os.umask(umask)
        try:
            files = Files(TelemetrySettings(made, rotate_size=1), "x", "x", iter(range(1, 10)))
            for block in (b"a\n", b"b\n", b"c\n"):
                files.write(block, 0.0)
            while not list(made.glob("x-1.jsonl.gz")):
                files.compress(0.0)
        finally:
            os.umask(before)
        files.forget()
        assert {path.suffix for path in made.iterdir()} == {".jsonl", ".gz"}
        assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {file}
        assert made.stat().st_mode & 0o777 == folder

    def test_a_plain_file_that_was_removed_is_no_failure(self, tmp_path: Path) -> None:
        source = Numbers(TelemetrySettings(tmp_path, rotate_size=1))
        for number in range(3):
            source.put(number)
            flush()
            for path in tmp_path.glob("*"):
                path.unlink(missing_ok=True)
        source.put(9)
        assert flush(PATIENCE)
        assert numbers(tmp_path) == [9]

    @pytest.mark.parametrize("fsync", ["no", "everysec", "always"])
    def test_every_fsync_setting_writes(self, tmp_path: Path, fsync: str) -> None:
        source = Numbers(TelemetrySettings(tmp_path, fsync=fsync))  # type: ignore[arg-type]
        source.put(1)
        assert flush(PATIENCE)
        assert numbers(tmp_path) == [1]


class TestDisks:
    def test_a_full_disk_is_one_warning_and_what_waited_is_written_later(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "haclient")
        source = Numbers(TelemetrySettings(tmp_path, rotate_size=10**9, queue_size=1000))
        for number in range(10):
            source.put(number)
        flush()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # The current content plus half a line: the next write is cut in the middle.
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(text(tmp_path)) + 100, hard))
        try:
            for number in range(10, 30):
                source.put(number)
            flush()
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
            for _ in range(3):
                flush()
            assert numbers(tmp_path) == list(range(10))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert flush(PATIENCE)
        assert numbers(tmp_path) == list(range(30))
        reported = [record for record in caplog.records if record.name == "haclient"]
        assert [record.levelname for record in reported] == ["WARNING", "INFO"]
        assert str(tmp_path) in reported[0].getMessage()

    def test_a_full_file_system_costs_what_the_queue_could_not_hold_and_says_how_much(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
        try:
            source = Numbers(TelemetrySettings(disk / "telemetry", queue_size=50))
            ballast = disk / "ballast"
            with contextlib.suppress(OSError):
                ballast.write_bytes(b"x" * 1_000_000)
            for number in range(200):
                source.put(number)
            flush()
            ballast.unlink()
            assert flush(PATIENCE)
            source.put(200)
            assert flush(PATIENCE)
            found = numbers(disk / "telemetry")
            dropped = [line["data"]["haclient.dropped"] for line in lines(disk / "telemetry", "dropped")]
            assert found[-1] == 200
            assert len(found) + sum(dropped) == 201
            assert sum(dropped) > 0
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            assert "No space left" in caplog.text
        finally:
            # The open file keeps the file system busy until it is rotated.
            subprocess.run(["umount", "--lazy", str(disk)], check=True)

    def test_a_directory_that_cannot_be_made_is_one_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        place = tmp_path / "place"
        place.write_text("a file stands in the way")
        source = Numbers(TelemetrySettings(place / "telemetry"))
        for number in range(20):
            source.put(number)
            flush()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        place.unlink()
        assert flush(PATIENCE)
        assert numbers(place / "telemetry") == list(range(20))

    def test_a_queue_that_is_full_drops_and_counts(self, tmp_path: Path) -> None:
        source = Numbers(TelemetrySettings(tmp_path, queue_size=5))
        with source.held():
            for number in range(12):
                source.put(number)
            assert source.dropped == 7
        assert flush(PATIENCE)
        assert numbers(tmp_path) == [0, 1, 2, 3, 4]
        assert [line["data"]["haclient.dropped"] for line in lines(tmp_path, "dropped")] == [7]
        assert flush(PATIENCE)
        assert len(lines(tmp_path, "dropped")) == 1

    def test_a_source_that_raises_loses_its_entry_and_nothing_else(self, tmp_path: Path) -> None:
        source = Numbers(TelemetrySettings(tmp_path))
        for entry in (1, object(), 2):
            source.put(entry)  # type: ignore[arg-type]
        assert flush(PATIENCE)
        assert numbers(tmp_path) == [1, 2]
        source.put(3)
        assert flush(PATIENCE)
        assert [line["data"]["haclient.dropped"] for line in lines(tmp_path, "dropped")] == [1]


def test_one_thread_writes_for_everybody(tmp_path: Path) -> None:
    for name in "abc":
        Numbers(TelemetrySettings(tmp_path / name)).put(1)
    assert flush(PATIENCE)
    assert [thread.name for thread in threading.enumerate()].count("haclient telemetry") == 1
    assert writer.channel(TelemetrySettings(tmp_path / "a"), "x") is not writer.channel(
        TelemetrySettings(tmp_path / "a"), "y"
    )

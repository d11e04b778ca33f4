"""The stream is killed at every possible place, and ends with the tables of the batch job."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from haclient.analysis import job
from haclient.analysis.io import batches
from haclient.analysis.io.batches import Batches
from haclient.analysis.job import InputError, Job
from haclient.analysis.stream import Pace, Stream, following
from haclient.analysis.stream import _put as put
from tests.analysis import commands, oracle, small_fleet, spark_processes, stored
from tests.analysis.local_job import Done, local
from tests.analysis.test_oracle import KEYS, same_rows

pytestmark = pytest.mark.slow  # streams with their checkpoints

__all__ = ["local"]

NOW = small_fleet.START + timedelta(hours=1)
ALERT_AFTER = 600.0
WRITES = 3  # of a batch: bad lines, events, unmatched events
CUTS = (1, WRITES + 2, WRITES + 3, 2 * WRITES + 1)  # writes of the lives; the last makes one batch of many
# ``make soak-stream`` kills more often, from other seeds.
KILLS = int(os.environ.get("STREAM_KILLS", "3"))
SEED = int(os.environ.get("STREAM_SEED", "7"))
STARTING = 180.0  # s; Spark takes 6 s on an idle machine
NOTHING = "nothing new"
TORN = '{"specversion": "1.0", "ty'
LARGEST_TIME = 4e9  # s; copied files have any time, and a disk without a clock says 1970
MOMENTS = (  # files that appear during a round, in this order
    "segments/*",
    "checkpoint/offsets/*",
    "quarantine/*/batch=*",
    "events/*/batch=*",
    "away/*/batch=*",
    "checkpoint/commits/*",
    "fresh/tables/*",
    "fresh/json/*",
)


class Feeder:
    """Writes files as a recorder does: grows them, rotates them, dies in the middle of a line.

    :param going: of these files each is removed when it is complete.
    """

    def __init__(
        self,
        folder: Path,
        files: list[list[str]],
        prng: random.Random,
        *,
        steps: int,
        going: list[list[str]],
    ) -> None:
        self._prng = prng
        self._most = 2 * sum(len(line) for lines in files + going for line in lines) // steps
        self._rest = [
            (folder / f"host {place}" / "a+b.jsonl", "\n".join(lines) + "\n")
            for place, lines in enumerate(files + going)
        ]
        self._going = {path for path, _ in self._rest[len(files) :]}
        self.bad = [line for lines in files for line in lines if not line.startswith("{")]
        for path, _ in self._rest:
            path.parent.mkdir(parents=True)

    def step(self) -> bool:
        """Grow, rotate or remove one file; return whether more steps remain."""
        if not self._rest:
            return False
        path, text = self._rest.pop(self._prng.randrange(len(self._rest)))
        if text:
            size = self._prng.randrange(1, self._most)
            with path.open("a") as file:
                file.write(text[:size])
            self._rest.append((path, text[size:]))
        elif path in self._going:
            path.unlink()
        elif self._prng.random() < 0.5:
            fresh, rotated = path.with_name("new"), path.with_name("a+b.jsonl.gz")
            fresh.write_bytes(gzip.compress(path.read_bytes()))
            os.utime(fresh, (0, self._prng.uniform(0, LARGEST_TIME)))
            fresh.rename(rotated)
            path.unlink()
        else:
            with path.open("a") as file:
                file.write(TORN)
            self.bad.append(TORN)
            os.utime(path, (0, 0))
        return bool(self._rest)

    def finish(self) -> None:
        while self.step():
            pass


def tables(out: Path) -> dict[str, list[Any]]:
    """Return the tables of a job; a rotated file has its former name, without its folder."""
    found = stored.tables(out)
    source = json.loads((out / "summary.json").read_text())["source"]
    for row in found["quarantine"]:
        row["file"] = row["file"].removesuffix(".gz").removeprefix(f"file:{source}/")
    found["quarantine"].sort(key=json.dumps)
    return found


def same_results(streamed: Path, batch: Path) -> None:
    assert tables(streamed) == tables(batch)
    one, other = (json.loads((out / "summary.json").read_text())["summary"] for out in (streamed, batch))
    assert one == other


@pytest.fixture
def telemetry(tmp_path: Path) -> Path:
    (tmp_path / "telemetry").mkdir()
    return tmp_path / "telemetry"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@contextmanager
def stream(spark: SparkSession, telemetry: Path, out: Path) -> Iterator[Stream]:
    pace = Pace(refresh=1e9, alert_after=ALERT_AFTER)
    with following(spark, Job(source=str(telemetry), out=out), pace, now=lambda: NOW) as made:
        yield made


@contextmanager
def without_tables(spark: SparkSession, telemetry: Path, out: Path) -> Iterator[Stream]:
    """Make a stream that has just made its tables, which take longest and prove nothing here."""
    with stream(spark, telemetry, out) as made:
        made._refreshed = time.monotonic()
        yield made


def write(telemetry: Path, place: int, lines: list[str]) -> None:
    (telemetry / f"{place}.jsonl").write_text("\n".join(lines) + "\n")


class KilledError(Exception):
    """Stands for SIGKILL: no further code runs, and the process does not return."""


def killed_at(step: int) -> Callable[..., None]:
    """Cut off ``Batches._write`` at its ``step``-th call, with half of the work done."""
    calls = 0
    real = Batches._write

    def write_or_die(self: Batches, rows: Any, path: Path) -> None:
        nonlocal calls
        calls += 1
        real(self, rows.limit(3) if calls == step else rows, path)
        if calls == step:
            raise KilledError

    return write_or_die


@pytest.mark.usefixtures("no_report")
def test_a_stream_that_is_cut_off_at_any_step_ends_with_the_tables_of_the_batch(
    spark: SparkSession, local: Done, telemetry: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each life repeats the cut batch, takes one more file, and is cut off a step later."""
    monkeypatch.setattr(batches, "MANY", 2)
    for life, file in enumerate(sorted(local.telemetry.iterdir())):
        shutil.copy(file, telemetry)
        last = life == len(CUTS) - 1
        killed = KilledError if last else StreamingQueryException  # a batch runs inside Spark's query
        with monkeypatch.context() as dying, without_tables(spark, telemetry, out) as mortal:
            dying.setattr(Batches, "_write", killed_at(CUTS[life]))
            with pytest.raises(killed):
                mortal.round()
        assert len(list((out / "state/checkpoint/commits").glob("[0-9]*"))) == life + last
    with stream(spark, telemetry, out) as next_life:
        figures = next_life.round().summary  # a life begins with tables
    assert figures == json.loads((out / "summary.json").read_text())["summary"]
    same_results(out, local.out)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_stream_that_is_killed_at_random_points_ends_with_the_tables_of_the_batch(
    spark: SparkSession, telemetry: Path, out: Path, tmp_path: Path
) -> None:
    prng = random.Random(SEED)
    files = small_fleet.files(15, 5, seed=6)
    files[0] = files[0][: len(files[0]) // 2]  # the rest is missing
    lines = Disordered.of(files, prng)
    feeder = Feeder(telemetry, lines.files, prng, steps=4 * KILLS, going=lines.going)
    kills = Counter(killed(telemetry, out, feeder, prng) for _ in range(KILLS))
    feeder.finish()
    before = made_at(out)
    with follower(telemetry, out) as process:
        until(lambda: made_at(out) != before, process, commands.LONGEST)
        write(telemetry, 99, lines.late)
        process.send_signal(signal.SIGTERM)
        assert process.wait(commands.LONGEST) == 0
    job.run(spark, Job(source=str(telemetry), out=tmp_path / "batch"))
    same_results(out, tmp_path / "batch")
    same_as_oracle(spark, out, files, feeder.bad, tmp_path / "lines.jsonl")
    assert kills.keys() != {NOTHING}
    sys.stdout.write(f"killed after {dict(kills)}\n")


def killed(telemetry: Path, out: Path, feeder: Feeder, prng: random.Random) -> str:
    """Kill a stream soon after a new file appears; return the file."""
    with follower(telemetry, out) as process:
        before = {moment: seen(out, moment) for moment in MOMENTS}
        for _ in range(3):
            feeder.step()
        moment = prng.choice(MOMENTS)
        try:
            until(lambda: seen(out, moment) - before[moment], process, 60)
        except TimeoutError:  # whole lines may not have arrived, or not suffice for all moments
            moment = NOTHING
        time.sleep(prng.uniform(0, 1))
        os.killpg(process.pid, signal.SIGKILL)
    return moment


class Disordered(NamedTuple):
    """The lines of a fleet as a stream meets them.

    :param files: the same lines in another order, some twice, some again with another time.
    :param going: more files of copies, which are removed.
    :param late: lines that arrive when all others are in the tables, and more with another time.
    """

    files: list[list[str]]
    going: list[list[str]]
    late: list[str]

    @classmethod
    def of(cls, files: list[list[str]], prng: random.Random) -> Disordered:
        made = [list(lines) for lines in files]
        prng.shuffle(made[1])
        whole = [[line for line in lines if line.startswith("{")] for lines in files]
        everything = [line for lines in whole for line in lines]
        late = prng.sample(whole[2], len(whole[2]) // 5)
        made = [[line for line in lines if line not in late] for lines in made]
        dated = [dated_again(line, prng) for line in prng.sample(everything, len(everything) // 10)]
        again = [line for line in prng.sample(everything, len(everything) // 8) if line not in late]
        going = [line for line in whole[1] if line not in late]
        return cls([*made, again + dated[::2], made[3]], [going], late + dated[1::2])


def dated_again(line: str, prng: random.Random) -> str:
    told = json.loads(line)
    time = datetime.fromisoformat(told["time"]) + timedelta(seconds=prng.uniform(-86_400, 86_400))
    return json.dumps(told | {"time": time.isoformat(timespec="microseconds").replace("+00:00", "Z")})


def same_as_oracle(
    spark: SparkSession, out: Path, files: list[list[str]], bad: list[str], path: Path
) -> None:
    """Assert that all tables equal DuckDB's on the ordered lines, without copies and re-dated lines."""
    path.write_text("\n".join(line for lines in files for line in lines) + "\n")
    found = {name: spark.read.parquet(str(out / "tables" / name)) for name in KEYS}
    assert Counter(row["line"] for row in found.pop("quarantine").collect()) == Counter(bad)
    found["alarms"] = found["alarms"].where("kind <> 'quarantine'")
    expected = oracle.answers(str(path))
    for name, table in found.items():
        assert expected[name], f"nothing to compare in {name}"
        same_rows(table, expected[name], KEYS[name])


def seen(out: Path, moment: str) -> set[tuple[str, int]]:
    """Return the files with their ages: tables are rewritten under the same name."""
    found = set()
    for path in (out / "state").glob(moment):
        with suppress(FileNotFoundError):
            found.add((str(path), path.stat().st_mtime_ns))
    return found


def made_at(out: Path) -> int:
    """Return when the tables were made, in nanoseconds; 0 before that."""
    summary = out / "summary.json"
    return summary.stat().st_mtime_ns if summary.exists() else 0


def until(condition: Callable[[], object], process: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "it ended by itself; out/../log says why"
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)


@contextmanager
def follower(telemetry: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command and wait until it reads lines; its process group includes Spark's JVM."""
    out.mkdir(exist_ok=True)
    command = [*commands.COMMAND, "analyze", str(telemetry), "--out", str(out), "--follow"]
    small = spark_processes.settings(spark_processes.SMALL)
    log = out.with_name("log")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--interval", "0.1", "--refresh", "1", "--master", "local[2]", *small],
            env=commands.environment(),
            start_new_session=True,
            stdout=file,
            stderr=file,
        )
        try:
            until(lambda: b"following" in log.read_bytes(), process, STARTING)
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_client_that_stays_down_has_one_alert(spark: SparkSession, telemetry: Path, out: Path) -> None:
    files = small_fleet.files(12, 2, seed=5)
    for place, lines in enumerate(files):
        write(telemetry, place, lines)
    lines = {line for file in files for line in file if line.startswith("{")}
    ends = [(json.loads(line)["type"].rpartition(".")[2], json.loads(line)["data"]) for line in lines]
    lost = {data["haclient.outage.id"] for kind, data in ends if kind == "lost"}
    back = {data["haclient.outage.id"] for kind, data in ends if kind == "connected"}
    assert lost - back

    with without_tables(spark, telemetry, out) as first:
        alerts = first.round().alerts
        assert {alert["outage_id"] for alert in alerts} == lost - back
        assert all(datetime.fromisoformat(alert["lost_at"]) < NOW for alert in alerts)
        assert first.round().alerts == []
    with without_tables(spark, telemetry, out) as second:
        assert second.round().alerts == []
    recorded = [json.loads(line) for line in (out / "alerts.jsonl").read_text().splitlines()]
    assert recorded == alerts


def test_a_client_that_is_back_in_time_has_no_alert(spark: SparkSession, telemetry: Path, out: Path) -> None:
    """The end of an outage is read before its beginning: the files of a fleet arrive in no order."""
    lines = [line for file in small_fleet.files(3, 1, seed=1) for line in file if line.startswith("{")]
    begins = [line for line in lines if '"haclient.connection.lost"' in line]
    write(telemetry, 1, [line for line in lines if line not in begins])
    with without_tables(spark, telemetry, out) as followed:
        assert followed.round().alerts == []
        write(telemetry, 2, begins)
        assert followed.round().alerts == []


def test_two_streams_cannot_have_one_output(spark: SparkSession, telemetry: Path, out: Path) -> None:
    with (
        stream(spark, telemetry, out),
        pytest.raises(InputError, match="another process follows into it"),
        stream(spark, telemetry, out),
    ):
        pass


def test_a_stream_of_nothing_makes_no_tables(spark: SparkSession, telemetry: Path, out: Path) -> None:
    with stream(spark, telemetry, out) as followed:
        brought = followed.round(refresh=True)
    assert (brought.lines, brought.alerts, brought.summary) == (False, [], None)
    assert not (out / "tables").exists()


def test_what_a_kill_left_while_tables_were_put_in_place_is_no_obstacle(tmp_path: Path) -> None:
    fresh, out = tmp_path / "fresh", tmp_path / "out"
    for name in ("tables", "json"):
        for folder in (fresh / f"old-{name}" / "left", fresh / name / "new", out / name / "old"):
            folder.mkdir(parents=True)
    put(fresh, out)
    assert [path.name for path in out.glob("*/*")] == ["new", "new"]


def test_a_stream_follows_a_folder(spark: SparkSession, out: Path) -> None:
    with pytest.raises(InputError, match="no such directory"), stream(spark, out / "nothing", out):
        pass

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from haclient.analysis import job
from haclient.analysis.thresholds import METRICS
from haclient.cli import main
from haclient.cli.commands import analyze as analyze_command
from haclient.cli.commands.analyze import analyze
from haclient.cli.commands.telemetry import telemetry
from haclient.telemetry.schema import markdown_table
from tests.analysis import small_fleet


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "telemetry"
    folder.mkdir()
    for place, file in enumerate(small_fleet.files(8, 1, seed=4, count=2)):
        (folder / f"{place}.jsonl").write_text("\n".join(file) + "\n")
    return folder


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands in the suite's session, and leave it running."""

    class Session:
        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

        def stop(self) -> None:
            pass

    def session(*_: Any, **__: Any) -> Any:
        return Session()

    for command in ("analyze", "telemetry"):
        monkeypatch.setattr(sys.modules[f"haclient.cli.commands.{command}"], "spark_session", session)


ALARM = {
    "kind": "flapping",
    "severity": "warning",
    "cluster": "orders",
    "at": None,
    "detail": "3 times in an hour",
    "endpoints": ["broker-a:5672"],
    "meaning": "It loses its clients.",
    "action": "Read its log.",
}
FOUND = dict.fromkeys(METRICS, 2) | {"p99_downtime": 1.25, "max_downtime": None}


@pytest.fixture
def done(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake the job without Spark; the tests of the job and of Spark Connect run a real one."""

    def finish(_: Any, given: job.Job, *__: Any) -> dict[str, Any]:
        given.out.mkdir(exist_ok=True)
        written = {"summary": FOUND, "alarms": [ALARM] * 11}
        (given.out / "summary.json").write_text(json.dumps(written))
        return FOUND

    monkeypatch.setattr(job, "run", finish)


@pytest.mark.usefixtures("done")
def test_analyze_shows_the_metrics_and_where_the_results_are(lines: Path, tmp_path: Path) -> None:
    shown = run("analyze", lines, "--out", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    assert "p99_downtime" in shown.stdout
    assert "1.250" in shown.stdout
    assert f"results in {tmp_path / 'out'}" in shown.stdout
    alarm = "warning: flapping (orders, broker-a:5672): 3 times in an hour"
    next_step = "  It loses its clients.\n  Next: Read its log.\n"
    assert shown.stdout.count(f"{alarm}\n{next_step}") == 10
    assert "1 more in" in shown.stdout


HIT = {"attribute": "service.version", "values": 1, **dict.fromkeys(analyze_command._HIT, 2)}


@pytest.mark.usefixtures("done")
def test_analyze_shows_who_was_hit_by_an_attribute(lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    late = {**HIT, "value": "1.4", "p99_downtime": 7.5, "p99_is_bound": True}
    others = [{**HIT, "value": None, "values": 30}, {**HIT, "value": None, "values": 0}]
    (out / job.HIT_BY).write_text(
        json.dumps([late, *others, {**HIT, "attribute": "host.name", "value": "h"}])
    )
    given = ("analyze", lines, "--out", out, "--by", "service.version")
    shown = run(*given)
    assert shown.exit_code == 0, shown.output
    for text in ("service.version", "1.4", "> 7.500", "(30 others)", "(not given)"):
        assert text in shown.stdout
    assert "no line has cloud.region" in run(*given, "--by", "cloud.region").stdout
    assert json.loads(run(*given, "--json").stdout)["hit_by"] == {"service.version": [late, *others]}
    assert run("analyze", lines, "--out", out, "--by", "team").exit_code == 2


@pytest.mark.usefixtures("done")
def test_a_broken_threshold_is_printed_and_exits_with_1(lines: Path, tmp_path: Path) -> None:
    given = ("analyze", lines, "--out", tmp_path, "--json", "--fail-if", "bad_lines>1", "--fail-if", "back<0")
    shown = run(*given)
    assert shown.exit_code == 1
    assert json.loads(shown.stdout) == FOUND
    assert shown.stderr == "bad_lines is 2, and must not be > 1\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--out", "out"], "DIR is missing"),
        (["in"], "--out is missing"),
        (
            ["in", "--out", "out", "--fail-if", "p98_downtime>5"],
            "'p98_downtime' is no metric; known: outages",
        ),
        (["in", "--out", "out", "--since", "yesterday"], "'yesterday' is no time like 2026-"),
        (["in", "--out", "out", "--conf", "memory"], "is not like spark.executor.memory=4g"),
        (["in", "--out", "out", "--master", "local", "--remote", "sc://a"], "exclude each other"),
        (["in", "--out", "out", "--follow", "--remote", "sc://a"], "--remote goes with neither --follow"),
    ],
)
def test_wrong_usage_is_printed_and_exits_with_2(arguments: list[str], complaint: str) -> None:
    done = run("analyze", *arguments)
    assert done.exit_code == 2
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--out", __file__, "is a file"),
        ("--since", "yesterday", "'yesterday' is no time like 2026-"),
        ("--slo", "101", "'101' is no number from 0 to 100"),
        ("--baseline", "nowhere", "'nowhere' is no directory"),
        ("--accept-rate", "0", "'0' is no number above 0"),
        ("--accept-rate", "fast", "'fast' is no number above 0"),
        ("--fail-if", "p98_downtime>5", "'p98_downtime' is no metric; known: outages"),
    ],
)
def test_the_command_and_the_submitted_job_refuse_a_value_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, why: str
) -> None:
    given = ["in", "--out", str(tmp_path), option, value]
    with pytest.raises(SystemExit) as ended:
        job.main(given)
    assert ended.value.code == 2
    assert why in " ".join(capsys.readouterr().err.split())
    refused = run("analyze", *given)
    assert refused.exit_code == 2
    assert why in " ".join(refused.stderr.split())


def test_a_missing_directory_exits_with_3_before_spark_starts(tmp_path: Path) -> None:
    done = run("analyze", tmp_path / "nothing", "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert done.stderr == f"Error: {tmp_path / 'nothing'}: no such directory\n"


@pytest.mark.usefixtures("here")
def test_input_of_bad_lines_only_exits_with_3(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("one\n")
    done = run("analyze", tmp_path / "in", "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert "none of its 1 lines is telemetry" in done.stderr


def test_no_java_is_a_sentence(lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("analyze", lines, "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert "Spark needs Java 17 or newer" in done.stderr
    assert "Traceback" not in done.output


def test_no_pyspark_is_a_sentence(lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    done = run("analyze", lines, "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert "pip install '.[spark]'" in done.stderr


@pytest.mark.parametrize("option", [["--remote", "sc://127.0.0.1:1"], ["--master", "spark://127.0.0.1:1"]])
def test_a_cluster_that_is_not_there_is_a_sentence(lines: Path, tmp_path: Path, option: list[str]) -> None:
    done = run("analyze", lines, "--out", tmp_path / "out", *option)
    assert done.exit_code == 3
    assert f"{option[1]} cannot be reached" in done.stderr


def test_the_metrics_are_listed_with_their_meaning() -> None:
    done = run("analyze", "--metrics")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(METRICS)


def test_the_package_is_written_with_how_to_submit_it(tmp_path: Path) -> None:
    done = run("analyze", "--package", tmp_path / "haclient.zip")
    assert done.exit_code == 0
    assert "spark-submit --py-files" in done.stdout
    assert (tmp_path / "haclient.zip").exists()


def test_the_schema_is_the_documentations_table() -> None:
    assert run("telemetry", "schema").stdout == markdown_table()


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("form", ["json", "json.gz", "parquet"])
def test_generated_telemetry_can_be_analysed(tmp_path: Path, form: str) -> None:
    made = run(
        "telemetry",
        "generate",
        "--clients",
        "4",
        "--outages",
        "1",
        "--format",
        form,
        "--out",
        tmp_path / "in",
    )
    assert made.exit_code == 0, made.output
    assert any(path.is_file() for path in (tmp_path / "in").rglob(f"*.{form.replace('json', 'jsonl')}"))


def test_every_option_and_metric_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "analysis-jobs.md").read_text()
    commands = [analyze, *telemetry.commands.values()]
    given = [each for command in commands for each in command.params]
    options = {each.opts[0] for each in given if each.param_type_name == "option"}
    assert not {option for option in options if f"`{option}`" not in text}
    assert not {name for name, meaning in METRICS.items() if f"| `{name}` | {meaning} |" not in text}

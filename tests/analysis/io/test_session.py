"""The session's errors for missing prerequisites."""

from __future__ import annotations

import importlib.util
import pickle
import re
from pathlib import Path

import pytest

from haclient.analysis.io import session
from haclient.analysis.io.session import AnalysisError, NoJavaError, NoSparkError


def fake_java(folder: Path, output: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_the_version_of_java_is_found_in_what_it_prints(text: str, version: int | None) -> None:
    assert session.java_version(text) == version


def test_without_java_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoJavaError, match=r"no java is on PATH.*apt-get install default-jre-headless"):
        session.spark_session("local[1]")


def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, 'openjdk version "11.0.2" 2019')))
    with pytest.raises(NoJavaError, match=r"bin/java \(from JAVA_HOME\) is version 11"):
        session.check_java()


def test_a_java_home_without_java_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJavaError, match="does not run"):
        session.check_java()


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(NoSparkError, match=r"pip install '\.\[spark\]'"):
        session.spark_session()


def test_a_master_and_a_server_at_once_are_refused() -> None:
    with pytest.raises(AnalysisError, match="one of them is enough"):
        session.spark_session("local[1]", "sc://localhost")


def test_its_errors_pickle() -> None:
    assert str(pickle.loads(pickle.dumps(NoJavaError("it is gone")))) == str(NoJavaError("it is gone"))  # noqa: S301


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4)])
def test_a_local_master_says_how_many_cores_it_has(master: str, cores: int) -> None:
    assert session.local_cores(master) == cores


def test_options_for_the_jvm_are_added_and_others_replaced() -> None:
    chosen = {session.JAVA_OPTIONS: "-Da", "spark.ui.enabled": "false"}
    given = {session.JAVA_OPTIONS: "-Db", "spark.ui.enabled": "true"}
    assert session._merged(chosen, given) == {session.JAVA_OPTIONS: "-Da -Db", "spark.ui.enabled": "true"}
    assert session._merged({}, {}) == {}


@pytest.mark.parametrize("ours", [session.COLLECTOR, session.LIGHT[session.JAVA_OPTIONS]])
def test_a_jvm_gets_one_collector_and_it_is_the_one_that_was_asked_for(ours: str) -> None:
    both = session._merged({session.JAVA_OPTIONS: ours}, {session.JAVA_OPTIONS: "-XX:+UseG1GC"})
    assert re.findall(r"Use\w+GC", both[session.JAVA_OPTIONS]) == ["UseG1GC"]

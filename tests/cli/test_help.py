"""``haclient help``: every error has an entry, here and in the docs, and it is printed without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from haclient import errors
from haclient.cli import main
from haclient.cli.exit_codes import DONE, USAGE
from haclient.discovery.evidence import FailureReason
from haclient.error_catalog.entries import ENTRIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text()
# How an order begins; "Nothing." is one too.
IMPERATIVES = re.compile(
    "add|allow|call|change|check|convert|correct|create|drain|find|give|install|load|look|make|name|nothing|"
    "raise|receive|reject|run|send|set|settle|start|take|turn|use|write",
    re.IGNORECASE,
)
CLASSES = sorted(set(errors.__all__) - {"HaclientError"})


def shown(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["help", *arguments])


def words(text: str) -> list[str]:
    return text.replace("`", "").split()


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_has_an_entry(name: str) -> None:
    assert getattr(errors, name).code in ENTRIES


@pytest.mark.parametrize("reason", FailureReason)
def test_every_end_of_an_attempt_has_an_entry(reason: FailureReason) -> None:
    assert reason.value in ENTRIES


def test_every_code_that_the_client_sets_has_an_entry() -> None:
    """A more exact one than that of the class; written as a literal wherever it is set."""
    sources = [path.read_text() for path in (ROOT / "haclient").rglob("*.py")]
    exact = {
        code
        for text in sources
        for code in re.findall(
            r'(?:exact_code|\.code|(?<!-)\bcode) ?= ?"([^"]+)"|ForeignProtocol\(\s*"([^"]+)"', text
        )
        for code in code
        if code
    }
    assert {"http-port", "amqp-0-9-1", "no-common-mechanism", "no-answer"} <= exact
    assert exact - set(ENTRIES) <= {errors.HaclientError.code}


def test_the_page_has_the_same_entries() -> None:
    """``scripts/readme_tables.py`` writes them anew."""
    entries = PAGE.split("<!-- entries -->")[1].split("<!-- /entries -->")[0]
    sections = re.findall(r"^### ([\w-]+)\n\n(.+)\n\n\*\*Do:\*\* (.+)\n", entries, re.MULTILINE)
    assert sections == [(code, entry.meaning, entry.remedy) for code, entry in ENTRIES.items()]


@pytest.mark.parametrize("code", ENTRIES)
def test_an_entry_is_printed(code: str) -> None:
    done = shown(code)
    entry = ENTRIES[code]
    assert done.exit_code == DONE
    assert words(done.stdout) == words(f"{code} {entry.meaning} Do: {entry.remedy} docs/errors.md#{code}")
    assert max(map(len, done.stdout.splitlines())) <= 80


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?!]) (?=[A-Z])", text)


@pytest.mark.parametrize("code", ENTRIES)
def test_what_to_do_is_one_or_two_sentences_in_the_imperative(code: str) -> None:
    found = sentences(ENTRIES[code].remedy)
    assert len(found) <= 2
    for sentence in found:
        order = re.sub("^(If|After|With) .*?, |^(Else|Then|Or) ", "", sentence)
        assert IMPERATIVES.fullmatch(re.split(r"\W", order, maxsplit=1)[0]), sentence


def test_all_of_them_are_listed() -> None:
    done = shown()
    assert done.exit_code == DONE
    assert re.findall(r"^([a-z0-9-]+)  ", done.stdout, re.MULTILINE) == list(ENTRIES)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_name_of_a_command_prints_its_help() -> None:
    assert shown("send").stdout.startswith("Usage: main send ")


@pytest.mark.parametrize(
    ("name", "part"), [("no-credits", "did you mean no-credit?"), ("%", "lists the names"), ("sned", "send?")]
)
def test_another_name_is_wrong_usage(name: str, part: str) -> None:
    done = shown(name)
    assert done.exit_code == USAGE
    assert part in done.stderr


def test_it_needs_neither_proton_nor_a_network() -> None:
    without = "import sys; sys.modules['proton'] = sys.modules['cproton'] = sys.modules['pyspark'] = None; "
    program = without + "from haclient.cli import main; main(['help', 'http-port'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == DONE, done.stderr
    assert done.stdout.startswith("http-port\n")

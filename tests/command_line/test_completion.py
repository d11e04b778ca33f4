"""Completion by click's own protocol, as the scripts of the shells use it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

import pytest

import broker_stub.cli
from haclient.cli import main
from haclient.command_line.completion import BashComplete, FishComplete, ZshComplete
from haclient.error_catalog.entries import ENTRIES

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


def answer(
    monkeypatch: pytest.MonkeyPatch, shell: str, words: Sequence[str], program: object = main
) -> list[str]:
    """Return the values that a shell is offered for the last word."""
    monkeypatch.setenv("COMP_WORDS", "\n".join(words[:-1] if shell == "fish" else words))
    monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words) - 1))
    name = words[0].upper().replace("-", "_")
    lines = SHELLS[shell](program, {}, words[0], f"_{name}_COMPLETE").complete().splitlines()
    if shell == "fish":
        assert all(line.startswith("plain,") for line in lines), "its script knows no other"
    if shell == "zsh":
        return lines[1::3]
    return [line.partition(",")[2].partition("\t")[0] for line in lines]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_options_of_the_url_are_offered_with_their_values(
    monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    def offered(word: str) -> list[str]:
        return answer(monkeypatch, shell, ["haclient", "explain", "-o", word])

    assert offered("stand") == ["standby=none", "standby=outage", "standby=warm"]
    assert offered("tls_v") == ["tls_verify=true", "tls_verify=false"]
    assert offered("deadl") == ["deadline="]
    assert offered("nothing") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_value_is_completed(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    words = ["haclient", "send", "amqp://a", "orders", "-o", "standby=w"]
    assert answer(monkeypatch, shell, words) == ["standby=warm"]


@pytest.mark.parametrize(
    "words",
    [
        ["haclient", "send", "amqp", "://", "a", "orders", "-o", "standby", "=", "w"],
        ["haclient", "members", "amqp", ":", "//a", "--option", "standby", "=", "w"],
        ["haclient", "watch", "--option", "=", "standby", "=", "w"],
    ],
)
def test_bash_which_divides_words_gets_the_last_part(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    assert answer(monkeypatch, "bash", words) == ["warm"]


def test_bash_gets_every_value_after_the_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["haclient", "watch", "-o", "standby", "="]
    assert answer(monkeypatch, "bash", words) == ["none", "outage", "warm"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_names_of_help_are_offered(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    assert answer(monkeypatch, shell, ["haclient", "help", "no-c"]) == [
        name for name in ENTRIES if name.startswith("no-c")
    ]
    assert answer(monkeypatch, shell, ["haclient", "help", "mem"]) == ["members"]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_options_of_both_programs_are_offered(
    monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    assert answer(monkeypatch, shell, ["haclient", "sen"]) == ["send"]
    assert answer(monkeypatch, shell, ["haclient", "send", "--non"]) == ["--non-durable"]
    assert answer(monkeypatch, shell, ["broker-stub", "queue", "rem"], broker_stub.cli.main) == ["remove"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_script_and_the_answers() -> None:
    """Runs in one process of bash, with canned answers instead of the program."""
    script = BashComplete(main, {}, "haclient", "_HACLIENT_COMPLETE").source()
    program = 'env() { printf "nospace,deadline=\\nplain,deliver\\n"; }; compopt() { echo "$@"; }; '
    program += (
        f'{script}\nCOMP_WORDS=(haclient -o de) COMP_CWORD=2; _haclient_completion; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-o nospace", "deadline= deliver"]

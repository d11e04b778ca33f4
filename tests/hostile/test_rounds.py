"""Rounds of the hostile broker find planted defects, and the client passes rounds with known bad numbers."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.hostile import rounds
from tests.hostile.__main__ import main
from tests.hostile.rounds import CALLERS, Round

_PLANTED = {
    "spins": "of a core",
    "grows": "its memory grew by",
    "hangs": "did not end",
    "raises": "KeyError: 'inside'",
    "reports": "send ended with KeyError",
    "dies": "it ended with -11",
}
# By name, with a seed whose first connections draw the worst numbers, if any are known.
_NAMED = {
    "more than its credit": 58,
    "tiny idle time-outs": 295,
    "impossible generations": 31,
    "endless redirects": 31,
    "Begins without an end": 31,
    "a million Dispositions": 31,
    "a Close each second": 31,
    "silent after a step": 31,
    "answers in the wrong order": 31,
    "smallest and largest sizes": 31,
    "absurd counters in Flows": 31,
    "extreme messages": 135,
}


def _round(seconds: float) -> Round:
    return Round(1, "asyncio", ("never drains",), seconds)


@pytest.mark.slow
@pytest.mark.parametrize(("defect", "found"), _PLANTED.items())
async def test_a_round_finds_a_caller_that(defect: str, found: str) -> None:
    outcome = await rounds.run(
        _round(3 if defect == "spins" else 0.7),  # beside others it gets only a part of a core
        caller=("tests.hostile.callers.planted", defect),
        patience=0.0 if defect == "hangs" else 30,
    )
    assert any(found in each for each in outcome.defects), outcome.defects


async def test_a_caller_that_behaves_has_no_defect() -> None:
    outcome = await rounds.run(_round(1), caller=("tests.hostile.callers.planted", "behaves"))
    assert outcome.defects == []
    assert outcome.connections == 1


def test_a_seed_draws_the_same_round() -> None:
    assert [rounds.draw(seed) for seed in range(50)] == [rounds.draw(seed) for seed in range(50)]
    assert {rounds.draw(seed).caller for seed in range(100)} == set(CALLERS)


def test_a_command_repeats_a_round() -> None:
    what = rounds.draw(5)
    assert what == rounds.draw(5, callers=(what.caller,), behaviours=what.behaviours, seconds=what.seconds)
    assert f"--seed 5 --rounds 1 --caller {what.caller}" in what.command


@pytest.mark.parametrize("caller", ["asyncio", "send"])
def test_a_short_run_prints_its_seed_and_passes(caller: str) -> None:
    arguments = ["broker", "--seed", "7", "--rounds", "1", "--seconds", "1", "--caller", caller]
    result = CliRunner().invoke(main, [*arguments, "--behaviour", "never drains"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("seed 7\n")


# Each caller meets a third of the behaviours, and each behaviour three callers; `make hostile` draws both.
_PAIRS = [
    (caller, behaviour)
    for row, caller in enumerate(CALLERS)
    for column, behaviour in enumerate(_NAMED)
    if (row + column) % 3 == 0 or (caller, behaviour) == ("waiting", "tiny idle time-outs")
]


@pytest.mark.slow
@pytest.mark.parametrize(("caller", "behaviour"), _PAIRS)
async def test_a_client_bears(caller: str, behaviour: str) -> None:
    # A share of a core is measurable only after some time.
    seconds = 7.0 if (caller, behaviour) == ("waiting", "tiny idle time-outs") else 3.0
    outcome = await rounds.run(Round(_NAMED[behaviour], caller, (behaviour,), seconds))
    assert outcome.defects == [], outcome.round.command

"""Executes the steps of a promotion (``generation.Promotion``).

Each write has a time limit, because a disk that hangs would block every other move of the member.
A promotion that exceeds it is in the same state as after a crash.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Protocol

from broker_stub.election import generation as rules
from broker_stub.election.arbiter import Arbiter, ArbiterUnavailableError
from broker_stub.election.roles import MoveRefusedError


class Candidate(Protocol):
    """The member that is to become primary."""

    state: rules.GenerationState

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write generation and pending claim durably."""


async def promote(
    candidate: Candidate, arbiter: Arbiter, *, patience: float, force: bool = False
) -> rules.Promotion:
    """Get the arbiter's agreement, write the generation, and return the finished promotion.

    :param patience: seconds that a write may take.
    :param force: promote even if the candidate's store lacks messages.
    :raises MoveRefusedError: when the member is not eligible, another one was faster, or its store hangs.
    :raises ArbiterUnavailableError: when the arbiter does not answer.
    :raises StoreFailedError: when the store fails.
    """
    record = await arbiter.read()
    begin = rules.Promotion.forced if force else rules.Promotion.begin
    promotion = begin(candidate.state, record, str(uuid.uuid4()), str(uuid.uuid4()))
    while True:
        match promotion.step:
            case rules.WritePending(state) | rules.WriteGeneration(state):
                await _write(candidate, state, patience)
                promotion = promotion.finished(promotion.step)
            case rules.CompareAndSet(expected, new):
                promotion = await _compare_and_set(arbiter, promotion, expected, new)
            case rules.Refused(refusal):
                raise MoveRefusedError(str(refusal))
            case rules.Done():
                return promotion


async def _write(candidate: Candidate, state: rules.GenerationState, patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            await candidate.write_state(state)
    except TimeoutError as error:
        why = f"the store has not written the promotion within {patience:g} s"
        # This process cannot distinguish these two causes.
        hint = "its disk hangs, or this process was paused; promote it again"
        raise MoveRefusedError(f"{why}: {hint}") from error


async def _compare_and_set(
    arbiter: Arbiter, promotion: rules.Promotion, expected: rules.ArbiterRecord, new: rules.ArbiterRecord
) -> rules.Promotion:
    try:
        won = await arbiter.compare_and_set(expected, new)
    except ArbiterUnavailableError as error:
        return promotion.unreachable(str(error))
    return promotion.compared(won=won)

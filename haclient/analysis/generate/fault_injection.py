"""Faults of a generated fleet: failures of its clients, and errors in its lines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults to inject; most are shares from 0 to 1.

    :param lost: lines never written; their numbers are missing.
    :param duplicated: lines written twice.
    :param bad: lines followed by one that is not JSON.
    :param dying: clients that die while reconnecting; the last line of each is cut short.
    :param giving_up: clients that give up in an outage.
    :param closing: clients whose application closes the connection.
    :param leaving: clients whose application closes it while they are reconnecting.
    :param restarting: clients that die while reconnecting, and start again as a new process.
    :param searching: clients that search from the last outage to the end.
    :param never: clients that never connect.
    :param skew: largest error of a client's wall clock, in seconds in either direction.
    :param stepping: clients whose wall clock jumps, by up to 10 s in either direction, in one outage.
    :param fast: number of clients whose wall clock is an hour fast; ``clock.as_of`` tolerates at least one.
    :param busy: outages of the client that has very many.
    :param split: whether a few clients see another primary of the same generation, or an older one.
    """

    lost: float = 0.002
    duplicated: float = 0.002
    bad: float = 0.0005
    dying: float = 0.02
    giving_up: float = 0.01
    closing: float = 0.02
    leaving: float = 0.005
    restarting: float = 0.005
    searching: float = 0.005
    never: float = 0.005
    skew: float = 1.0
    stepping: float = 0.01
    fast: int = 0
    busy: int = 1000
    split: bool = True


USUAL = Faults()
CLEAN = Faults(
    lost=0.0,
    duplicated=0.0,
    bad=0.0,
    dying=0.0,
    giving_up=0.0,
    closing=0.0,
    leaving=0.0,
    restarting=0.0,
    searching=0.0,
    never=0.0,
    skew=0.0,
    stepping=0.0,
    busy=0,
    split=False,
)

"""Explore a model of a given size, or a mutant: exit code 1 if an invariant is broken."""

from __future__ import annotations

import argparse
import sys
import time

from tests.broker_stub.election.model.clients import Client
from tests.broker_stub.election.model.invariants import (
    ALL,
    CLIENTS,
    FORCED,
    PROVEN_CLIENTS,
    SAFETY,
    Broken,
)
from tests.broker_stub.election.model.report import counter_example, summary
from tests.broker_stub.election.model.rules import MUTANTS, RULES
from tests.broker_stub.election.model.search import explore

INVARIANTS = {
    "all": ALL,
    "safety": SAFETY,
    "heirs": SAFETY | {Broken.ELIGIBLE_LACKS},
    "forced": FORCED,
    "clients": SAFETY | CLIENTS,
    "proven-clients": SAFETY | PROVEN_CLIENTS,
}
_CLIENTS = {"proven": Client(proves=True), "anonymous": Client(proves=False)}


def main() -> int:
    """Run one search and print the result."""
    options = _parser().parse_args()
    if options.members > 2 and options.mutant is None:
        sys.stderr.write("three members take minutes, and a gigabyte for four million states\n")
    started = time.monotonic()
    outcome = explore(
        members=options.members,
        messages=options.messages,
        generations=options.generations,
        rules=MUTANTS.get(options.mutant, RULES),
        watch=INVARIANTS[options.watch],
        late=options.late,
        wipes=options.wipes,
        forces=options.forces,
        asides=options.asides,
        consumes=options.consumes,
        client=_CLIENTS.get(options.client),
        most_states=options.most_states,
    )
    sys.stdout.write(f"{summary(outcome, time.monotonic() - started)}\n{counter_example(outcome)}")
    return 1 if outcome.broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.broker_stub.election.model", description=__doc__)
    parser.add_argument("--members", type=int, default=3, choices=(2, 3))
    parser.add_argument("--messages", type=int, default=1)
    parser.add_argument("--generations", type=int, default=3, help="the arbiter goes no further")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="leave one of the rules out")
    parser.add_argument(
        "--watch",
        choices=sorted(INVARIANTS),
        default="all",
        help="safety: those of which the guarantee is made; heirs: that of everybody who may be promoted too",
    )
    parser.add_argument(
        "--late", action="store_true", help="a compare-and-set may come when its member gave up"
    )
    parser.add_argument("--asides", action="store_true", help="queues may be set aside")
    parser.add_argument("--consumes", action="store_true", help="consumers accept, and are told so")
    parser.add_argument(
        "--client",
        choices=sorted(_CLIENTS),
        help="a client and an impostor, among members that prove who they are or do not; goes with --watch"
        " proven-clients or clients",
    )
    parser.add_argument("--wipes", action="store_true", help="members may lose their disks")
    parser.add_argument(
        "--forces", action="store_true", help="members may be promoted by force; goes with --watch forced"
    )
    parser.add_argument("--most-states", type=int, help="stop after so many")
    return parser


if __name__ == "__main__":
    sys.exit(main())

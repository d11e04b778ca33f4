"""Known causes of foreign clients' failures, established with rhea 3.0.5 alone, without a broker.

A failure without a known cause is shown without a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RHEA = "javascript-rhea"


@dataclass(frozen=True, slots=True)
class Cause:
    """One known cause.

    :param fault: the key of the client at fault.
    :param sending: whether the client fails as sender, or as receiver.
    :param suites: the suites of the failures; empty for all.
    :param pattern: a regular expression for a value's problem.
    :param blame: the heading: the client and the subject.
    :param text: the reason, with the evidence.
    """

    fault: str
    sending: bool
    suites: tuple[str, ...]
    pattern: str
    blame: str
    text: str


CAUSES = (
    Cause(
        RHEA,
        sending=True,
        suites=(),
        pattern=r"RangeError|\bu?long ",
        blame="QIT's shim of rhea, as a sender: numbers beyond 2^53",
        text="The shim makes a JavaScript number of the value, which is exact up to 2^53. rhea writes the"
        " 64 bits of a `Buffer`: `wrap_ulong(Buffer.from('ffffffffffffffff', 'hex'))` is"
        " `80ffffffffffffffff`.",
    ),
    Cause(
        RHEA,
        sending=False,
        suites=(),
        pattern=r"9007199254740993 arrived",
        blame="rhea, as a receiver: 2^53 + 1",
        text="rhea reads `810020000000000001` as the number 9007199254740992, one less. It hands on a"
        " `Buffer` for larger numbers only.",
    ),
    Cause(
        RHEA,
        sending=False,
        suites=("types", "jms"),
        pattern=r"^u?long -?\d+ arrived as (u?long null|binary)",
        blame="QIT's shim of rhea, as a receiver: numbers beyond 2^53",
        text="rhea hands on a `Buffer` with the 64 bits: it reads `817fffffffffffffff` as the `Buffer`"
        " `7fffffffffffffff`. The shim makes a number of it, which is none, or takes it for binary.",
    ),
    Cause(
        RHEA,
        sending=False,
        suites=("jms", "jms-headers"),
        pattern=r".",
        blame="rhea, as a receiver: the type of a number in a map, a list or a property",
        text="rhea hands on a plain JavaScript number there, whatever its AMQP type: `5180`, a byte, and"
        " `7240490fdb`, a float, are both just numbers. The shim has to guess the type. Numbers of more"
        " than 53 bits come as a `Buffer`.",
    ),
)


def cause_of(fault: str, *, sending: bool, suite: str, problem: str) -> Cause | None:
    """Return the first known cause of a failure."""
    for cause in CAUSES:
        same = (cause.fault, cause.sending) == (fault, sending)
        if same and suite in (cause.suites or (suite,)) and re.search(cause.pattern, problem):
            return cause
    return None

"""The meaning, severity and remedy of each kind of alarm.

Rules
-----
* Pure: no Spark here.  ``tables/alarms.py`` finds the alarms; the command line and the report show them.
* Only this module has the texts.
* ``critical``: clients have no connection, or one of two primaries may lack messages.  Act now.
* ``warning``: no client is down because of it.  But the next outage will be worse, or the analysis lacks
  data.  Act today.
* ``notice``: it happened and has ended.  No action is needed.
* The metric ``alarms`` counts critical ones and warnings, which need action.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class Severity(enum.StrEnum):
    """The urgency of an alarm, most urgent first."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class AlarmKind:
    """One kind of alarm.

    :param severity: urgency.
    :param meaning: the problem, for a reader new to it.
    :param action: the next step.
    """

    severity: Severity
    meaning: str
    action: str


KINDS: Mapping[str, AlarmKind] = MappingProxyType(
    {
        "split_claim": AlarmKind(
            Severity.CRITICAL,
            "Two members served clients under one generation at the same time.",
            "Run `haclient members URL`. If both still serve, stop one of them: what was sent to one is not "
            "at the other. One member that has two names shows up here as well.",
        ),
        "generation_backwards": AlarmKind(
            Severity.CRITICAL,
            "A client found an older primary than the one that it had lost.",
            "Run `haclient members URL`, and stop the member with the lower generation: it does not "
            "have what was sent since.",
        ),
        "not_back": AlarmKind(
            Severity.CRITICAL,
            "Connections were lost and are not back.",
            "Look them up in the table not_recovered: it has the client, its last error and where it tried. "
            "Restart those that gave up or are silent; for those that are still searching the error says "
            "what to look at.",
        ),
        "never_connected": AlarmKind(
            Severity.CRITICAL,
            "Clients started and have no connection a minute later.",
            "Look up their last error in the table not_recovered: after a deployment it is most often a "
            "wrong URL, a missing route or refused credentials. `haclient explain URL` says what it means.",
        ),
        "flapping": AlarmKind(
            Severity.WARNING,
            "A member loses at least half of its connections again and again.",
            "Read the log of this member at the times of its losses: it crashes, is restarted by its "
            "supervisor, or its network fails. Take it out of the cluster until the reason is known.",
        ),
        "uneven_delays": AlarmKind(
            Severity.WARNING,
            "Clients do not spread their delays as their backoff strategy promises, so that they may arrive "
            "together.",
            "Compare the versions and the seeds of the random source of these clients: processes that are "
            "forked or cloned with one seed wait equally long. The table jitter has the group.",
        ),
        "lost_telemetry": AlarmKind(
            Severity.WARNING,
            "Lines of telemetry were lost, so that outages may be missing here, or seem to have no end.",
            "Give the writers more room: a larger queue or disk. Look for a log shipper that dropped files.",
        ),
        "quarantine": AlarmKind(
            Severity.WARNING,
            "Lines could not be read, or their time is not plausible.",
            "See the table quarantine for the files and the errors: another program writes into the folder, "
            "files are cut short, or devices have no time yet.",
        ),
        "clock": AlarmKind(
            Severity.NOTICE,
            "Wall clocks were set while processes ran, or are ahead of those of all others.",
            "Check the time synchronisation of these hosts. Downtimes are right: they are measured by "
            "monotonic clocks.",
        ),
        "storm": AlarmKind(
            Severity.NOTICE,
            "Many connections of one cluster were lost at once.",
            "Find out why the primary was lost, and check with `haclient members URL` that a backup is there "
            "again. The table storms has how long it took until the connections were back.",
        ),
    }
)
"""The kinds of alarm, the most urgent first."""

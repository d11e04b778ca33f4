"""The recommended actions, one row each, the most urgent first.

Rules
-----
* Each row has a ``severity``, the problem, and the next action.
* An alarm has its own severity and next action (``analysis.alarms``).
* No settings are proposed while connections are down, because the downtimes then lack the longest ones.
* Every recommendation is based on rows that the report shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from haclient.analysis.report import findings, text
from haclient.analysis.report.text import Row, Rows, counted, number

SEVERITIES = {
    "critical": "now",
    "warning": "today",
    "notice": "to know",
    "consider": "consider",
}
"""Severities, the most urgent first, with the time to act; ``consider`` is for advice, others for alarms."""

_LONGEST = 400  # most characters of an action

_ERRORS = {
    "authentication": "Check the credentials that they use: the broker refuses them each time.",
    "authentication-temporary": "Check the broker's source of credentials, and whether tokens have expired.",
    "tls-verification": "Check the certificate of the broker, and the authorities that these clients trust.",
    "tls-failed": "Compare the TLS versions and ciphers of these clients and of the broker.",
    "unresolved": "Check the name in their cluster URL, and DNS where they run.",
    "refused": "Check that a broker listens at the endpoints in their cluster URL.",
    "unreachable": "Check the route and firewalls between them and the broker.",
    "timed-out": "Check the route and firewalls between them and the broker, and whether it is overloaded.",
    "closed": "Read the broker's log for why it closes their connections: limits, permissions, virtual host.",
    "ended": "Read the log of the broker, or of the proxy before it: it closes sockets during the setup.",
    "not-amqp": "Check the port in their cluster URL: something else answers there.",
    "redirected": "Check that a primary is there: members only redirect.",
}
_ONLY_PASSIVE = (
    "Compare the cluster URL of these clients with that of the others: they find only members that are not "
    "the primary, to which others are connected."
)
_OTHERS_REACH = {
    "timed-out": "Check the route and firewalls between them and the broker: others reach it.",
    "refused": "Compare their cluster URL, and what forwards its ports, with those of the others.",
}
"""Actions for clients with something in common, if other clients are connected."""

_SETTINGS = {
    "accept_rate": ("broker", "connections a second"),
    "backoff_max": ("client", "s"),
    "deadline": ("client", "s"),
}
"""The owner of each setting, and its unit."""

_TABLES = {
    "the table not_recovered": "“Clients that did not recover” below",
    "The table storms": "“Storms” below",
    "The table jitter": "“Jitter” below",
    "the table quarantine": "the folder tables/quarantine of the results",
}
"""The sections of the page for the tables that alarms name."""

_OF_THE_LOST = {"not_back", "never_connected"}
"""Alarms that repeat the rows about connections that are down."""

_NAMES = 3  # most services to name


def actions(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """Return all actions: ``severity``, ``what`` (the problem), ``action``, ``basis``."""
    lost = text.first(tables.get("headline", ())).get("away")
    rows = [
        *_for_the_lost(tables),
        *_for_alarms(
            [row for row in tables.get("alarms", ()) if not lost or row["kind"] not in _OF_THE_LOST]
        ),
        *_advised(() if lost else tables.get("advice", ())),
    ]
    return sorted(rows, key=lambda row: list(SEVERITIES).index(row["severity"]))


def _row(severity: str, what: str, action: str, basis: str) -> dict[str, Any]:
    return {
        "severity": severity if severity in SEVERITIES else "warning",
        "what": what,
        "action": action,
        "basis": basis,
    }


def _for_the_lost(tables: Mapping[str, Rows]) -> Iterator[dict[str, Any]]:
    headline = text.first(tables.get("headline", ()))
    lost = headline.get("away") or 0
    if not lost:
        return
    what = f"{counted(lost, 'connection')} away{_of_services(tables)}"
    same = findings.shared(tables.get("hit", ()), "away")
    version = next((one for one in same if one.attribute.endswith("version")), None)
    if version is not None:
        yield _row("critical", what, *_roll_back(version, tables))
    stuck, still = _by_result(tables.get("away", ()))
    errors = findings.sums(still, "error", "connections")
    known = sorted((error for error in errors if error in _ERRORS), key=lambda error: (-errors[error], error))
    for error in known:
        who = f"{number(errors[error])} that are away{_with(same)}"
        others = (headline.get("connections") or 0) > lost
        advised = (same and others and _OTHERS_REACH.get(error)) or _ERRORS[error]
        advised = _ONLY_PASSIVE if error == "redirected" and others else advised
        yield _row("critical", what, f"{advised} This is for the {who}.", f"error.type {error}")
    where = _with(same)
    if stuck.get("silent"):
        who = f"the {number(stuck['silent'])} that are silent{where}"
        advised = f"Look whether the processes of {who} still run, and restart those that hang."
        yield _row("critical", what, advised, "no line from them in the last two minutes")
    if stuck.get("gave_up"):
        advised = (
            f"Restart the {number(stuck['gave_up'])} clients{where} that gave up: they do not try again."
        )
        yield _row("critical", what, advised, f"{number(stuck['gave_up'])} gave up")
    if version is None and not known and not stuck:
        yield _row("critical", what, *_inspect(headline, same))


def _by_result(rows: Rows) -> tuple[dict[str, int], list[Row]]:
    """Count connections that stopped trying, by result; also return the rows of the others."""
    stuck = [row for row in rows if row.get("result") in {"silent", "gave_up"}]
    still = [row for row in rows if row.get("result") not in {"silent", "gave_up"}]
    return findings.sums(stuck, "result", "connections"), still


def _of_services(tables: Mapping[str, Rows]) -> str:
    """List the services whose connections are down, those with the most first."""
    rows = [row for row in tables.get("hit", ()) if row["attribute"] == "service.name" and row["value"]]
    found = findings.sums(rows, "value", "away") or findings.sums(
        tables.get("away", ()), "service", "connections"
    )
    names = sorted((name for name in found if name and found[name]), key=lambda name: (-found[name], name))
    shown = [text.label(name) for name in names[:_NAMES]]
    more = [f"{number(len(names) - _NAMES)} more"] if len(names) > _NAMES else []
    return f", of {text.joined([*shown, *more])}" if names else ""


def _with(same: list[findings.Shared]) -> str:
    """Name the attribute that nearly all of them share, if any."""
    return f" with {same[0].attribute} {text.label(same[0].value)}" if same else ""


def _roll_back(version: findings.Shared, tables: Mapping[str, Rows]) -> tuple[str, str]:
    deploy = next((row for row in tables.get("deploys", ()) if row["value"] == version.value), {})
    before = f" to {text.label(deploy['before'])}" if deploy.get("before") else ""
    service = f" of {text.label(deploy['service'])}" if deploy.get("service") else ""
    action = (
        f"Roll {version.attribute} {text.label(version.value)}{service} back{before}, or stop its roll-out."
    )
    return action, " ".join(findings.common(tables.get("hit", ()), "away")[:1])


def _inspect(headline: Row, same: list[findings.Shared]) -> tuple[str, str]:
    where = _with(same)
    if headline.get("silent"):
        action = (
            f"Look whether the processes{where} still run, and restart those that hang: they write no lines."
        )
        return action, f"{number(headline['silent'])} silent"
    if headline.get("gave_up"):
        action = f"Restart the clients{where} that gave up: they do not try again."
        return action, f"{number(headline['gave_up'])} gave up"
    return f"See what the clients{where} try: endpoints and errors are below.", ""


def _for_alarms(alarms: Rows) -> Iterator[dict[str, Any]]:
    for row in alarms:
        where = f" in {text.label(row['cluster'])}" if row.get("cluster") else ""
        detail = f"{text.minute(row.get('at'))} UTC: {text.text(row.get('detail'))}"
        action = text.text(
            row.get("action") or row.get("meaning") or "Look at the detail of the alarm.", _LONGEST
        )
        for table, section in _TABLES.items():
            action = action.replace(table, section)
        yield _row(str(row.get("severity")), f"{text.text(row['kind'])}{where}", action, detail)


def _advised(advice: Rows) -> Iterator[dict[str, Any]]:
    for row in advice:
        if row.get("proposed") is None:
            continue
        name, reason = text.text(row.get("parameter")), text.text(row.get("reason"))
        whose, unit = _SETTINGS.get(name, ("", ""))
        name = f"{name} of the {whose}" if whose else name
        now = f" (now {text.text(row['current'])})" if row.get("current") is not None else ""
        value = f"{text.text(row['proposed'])} {unit}".strip()
        action = f"Set {name} to {value}{now}: {reason}."
        where = f" in {text.label(row['cluster'])}" if row.get("cluster") else ""
        yield _row("consider", f"{name}{where}", action, f"{text.text(row.get('basis'))}{_replayed(row)}")


def _replayed(advice: Row) -> str:
    """Describe the result of the replay."""
    before, after = advice.get("last_before"), advice.get("last_after")
    if after is None:
        return ""
    return f"; in a replay the last one is back after {text.seconds(after)}, now {text.seconds(before)}"

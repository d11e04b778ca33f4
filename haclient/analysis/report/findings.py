"""The seven answers of the report, in words, in their order.

Rules
-----
* Each question has one sentence or a few, with the counts; every statement is based on rows of the report.
* Affected connections (down, or hit) share a value if nearly all of them have it.  It must also make being
  affected at least ``LIFT`` times as likely as without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haclient.analysis.report import present, text
from haclient.analysis.report.text import Row, Rows, counted, number, percent, seconds
from haclient.telemetry.rfc3339 import moment
from haclient.telemetry.schema import NO_FAILURES

LIFT = 3.0
_NEARLY_ALL = 0.9
_COMPARED = 4  # most metrics in a sentence
_ALIKE = 0.9  # share of the highest count from which a member's count is about equal
_BOTH = 2
_NOTED = 2  # most shared attributes, or changes, in a sentence


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the seven answers.

    :param section: id of its section in the page.
    :param bad: whether it is bad news.
    """

    section: str
    question: str
    answer: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """A value of an attribute that the affected connections (down, or hit) have in common.

    :param of: affected connections with the value.
    :param everyone: all affected connections.
    :param connections: all connections with the value.
    :param others: affected connections without it.
    :param rest: all connections without it.
    :param ended: connections with it that ended without an outage before the end of the period.
    :param rest_ended: the same for connections without it.
    """

    attribute: str
    value: str
    of: int
    everyone: int
    connections: int
    others: int
    rest: int
    ended: int = 0
    rest_ended: int = 0

    @property
    def lift(self) -> float:
        """The ratio of the risks with and without the value; infinite if no one else is affected."""
        return (self.of / self.connections) / (self.others / self.rest) if self.others else float("inf")


def shared(rows: Rows, name: str) -> list[Shared]:
    """Return values that the connections in column ``name`` share, the most significant first.

    :param rows: ``attribute``, ``value``, ``connections``, ``hit``, ``away``, ``ended``; all values of an
        attribute.
    :param name: ``away`` (down now) or ``hit``.
    """
    everyone, fleet, ended = (_by_attribute(rows, column) for column in (name, "connections", "ended"))
    found = []
    for row in rows:
        attribute, of = row["attribute"], row[name]
        total, rest = everyone[attribute], fleet[attribute] - row["connections"]
        if row["value"] is None or not rest or of < _NEARLY_ALL * total or not of:
            continue
        own = row.get("ended") or 0
        one = Shared(
            *(attribute, str(row["value"]), of, total, row["connections"], total - of, rest),
            *(own, ended[attribute] - own),
        )
        if one.lift >= LIFT:
            found.append(one)
    return sorted(found, key=lambda one: (-one.lift, one.connections, one.attribute))


def _by_attribute(rows: Rows, column: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row["attribute"]] = found.get(row["attribute"], 0) + (row.get(column) or 0)
    return found


def answers(
    tables: Mapping[str, Rows], compared: Rows, actions: Rows, slo: float, age: float | None = None
) -> list[Answer]:
    """Return the seven answers, in their order.

    :param compared: from ``baseline.compared``.
    :param actions: from ``actions.actions``.
    :param slo: share of the time that connections should be usable.
    :param age: seconds since the end of the period, if that is long ago.
    """
    headline = text.first(tables.get("headline", ()))
    lost = headline.get("away") or 0
    return [
        Answer("away", "Is anybody away now?", who_is_lost(tables, age), lost > 0),
        Answer("happened", "What happened?", happened(tables)),
        Answer("hit", "Who was hit?", whos_hit(tables)),
        Answer("long", "How long?", how_long(headline, slo, since(tables)), _burnt(headline, slo) > 1),
        Answer("why", "Why?", causes(tables)),
        Answer("compared", "Compared with a former run?", _compared(compared, tables), _worse(compared)),
        Answer("do", "What to do?", _do(actions), bool(actions) and actions[0]["severity"] == "critical"),
    ]


# -- connections that are down, or were hit -------------------------------------------------------


def who_is_lost(tables: Mapping[str, Rows], age: float | None = None) -> str:
    """Describe the connections that are down at the end of the period.

    :param age: seconds since then, if that is long ago.
    """
    headline = text.first(tables.get("headline", ()))
    lost = headline.get("away") or 0
    old = "" if age is None else f", {seconds(age)} before this report was made"
    at = f", as of {text.minute(headline['last_at'])} UTC{old}" if headline.get("last_at") else ""
    if not lost:
        ends = "Every connection that was lost is back, was closed, or was replaced by a new process."
        return f"No{at}. {ends if headline.get('outages') else 'No connection was lost.'}"
    connections = judged(headline) or lost
    parts = [f"{number(headline[name])} {said}" for name, said in text.RESULTS.items() if headline.get(name)]
    share = f"Yes{at}: {number(lost)} of {counted(connections, 'connection')} ({percent(lost / connections)})"
    first = since(tables)
    when = f", the first since {text.minute(first)} UTC" if first else ""
    return " ".join([f"{share}{when}: {text.joined(parts)}.", *common(tables.get("hit", ()), "away")])


def judged(headline: Row) -> int:
    """Count the connections that shares refer to: all that did not end early without an outage.

    Of a replaced process and its successor, only one can be down.
    """
    return (headline.get("connections") or 0) - (headline.get("ended") or 0)


def since(tables: Mapping[str, Rows]) -> str | None:
    """Return the time of the first loss among connections that are still down."""
    return min((row["since"] for row in tables.get("away", ()) if row.get("since")), default=None)


def common(rows: Rows, name: str) -> list[str]:
    """Return sentences about shared values of affected connections; empty if there are none."""
    verb = {"away": "away", "hit": "hit"}[name]
    found = []
    for one in shared(rows, name)[:_NOTED]:
        who = "All" if one.others == 0 else f"{number(one.of)} of {number(one.everyone)}"
        others = "none" if one.others == 0 else number(one.others)
        found.append(
            f"{who} that {'are' if name == 'away' else 'were'} {verb} have {one.attribute} "
            f"{text.label(one.value)} ({number(one.of)} of its "
            f"{counted(one.connections - one.ended, 'connection')}; "
            f"{others} of the other {number(one.rest - one.rest_ended)})."
        )
    return found


def whos_hit(tables: Mapping[str, Rows]) -> str:
    """Count the connections that had an outage, and name the values they share."""
    headline = text.first(tables.get("headline", ()))
    hit, connections = headline.get("clients_hit") or 0, judged(headline)
    if not hit:
        return "Nobody."
    rows = tables.get("hit", ())
    if hit >= connections:
        said = f"Everybody: all {counted(hit, 'connection')}, in {outages(headline)}."
        alike = "So no version, service, region or host stands out"
        still = ", but for those that are away: see above" if common(rows, "away") else ""
        same = [f"{alike}{still}."] if rows else []
    else:
        share = f"{number(hit)} of {counted(connections, 'connection')} ({percent(hit / connections)})"
        said = f"{share}, in {outages(headline)}."
        same = common(rows, "hit") or (
            ["They have nothing in common that the others have not."] if rows else []
        )
    return " ".join([said, *same, *_ended(headline)])


def _ended(headline: Row) -> list[str]:
    """Describe the connections that the shares leave out."""
    ended = headline.get("ended") or 0
    if not ended:
        return []
    who = f"{counted(ended, 'connection')} that ended without an outage before the end of the period"
    return [f"Not counted: {who}, closed or with their process, as old pods of a deploy do."]


def outages(headline: Row) -> str:
    """Count outages, and first connects that never succeeded: ``2,013 outages``."""
    never = headline.get("never_connected") or 0
    parts = [counted(headline["outages"], "outage")] if headline.get("outages") or not never else []
    return text.joined(
        [*parts, *([f"{counted(never, 'first connect')} that never succeeded"] if never else [])]
    )


# -- the events of the period --------------------------------------------------------------------


def happened(tables: Mapping[str, Rows]) -> str:
    """Describe the period: storms, single losses, promotions and deploys."""
    headline = text.first(tables.get("headline", ()))
    storms = tables.get("storms", ())
    total = max(_total(tables, "storms"), len(storms))
    lost = sum(row["lost"] for row in tables.get("timeline", ()))
    never = headline.get("never_connected") or 0
    single = lost - never - sum(row["in_storm"] for row in tables.get("timeline", ()))
    if not lost and not headline.get("outages"):
        return "Nothing: no connection was lost."
    parts = []
    if total:
        largest = max(storms, key=lambda row: row.get("clients_hit") or 0, default={})
        which = "" if total == 1 else ", the largest"
        at, size = text.minute(largest.get("started_at")), counted(largest.get("clients_hit"), "connection")
        parts.append(
            f"{counted(total, 'storm')} (many connections of a cluster lost at once){which} at {at} UTC, "
            f"of {size}"
        )
    if single:
        parts.append(f"{counted(single, 'single loss')}")
    if never:
        parts.append(f"{counted(never, 'first connect')} that never succeeded")
    promotions, deploys = tables.get("promotions", ()), tables.get("deploys", ())
    for rows, noun in ((promotions, "promotion"), (deploys, "deploy")):
        if rows:
            parts.append(counted(len(rows), noun))
    said = "; ".join(parts)
    more = [deploy(row, tables.get("hit", ())) for row in deploys[:_NOTED]]
    primary = [promotion(row) for row in promotions[:1]]
    return " ".join([f"{said[:1].upper()}{said[1:]}.", *primary, *present.silent_members(tables), *more])


def promotion(row: Row) -> str:
    """Name the new primary and the first client that reconnected to it."""
    where = f" of {text.label(row['cluster'])}" if row.get("cluster") else ""
    return (
        f"The primary{where} is {text.text(row.get('endpoint'))}, with the first client back at "
        f"{text.minute(row['at'])} UTC (generation {number(row.get('generation'))})."
    )


def deploy(row: Row, hit: Rows = ()) -> str:
    """Describe a change of version.

    :param hit: the rows of ``data.hit``.
    """
    before = f" after {text.label(row['before'])}" if row.get("before") else ""
    who, what = text.label(row.get("service")), f"{text.text(row['attribute'])} {text.label(row['value'])}"
    return f"{who} began to run {what}{before} at {text.minute(row['at'])} UTC.{present.versions(row, hit)}"


def _total(tables: Mapping[str, Rows], name: str) -> int:
    return next((int(row["rows"]) for row in tables.get("totals", ()) if row["table"] == name), 0)


# -- how long -------------------------------------------------------------------------------------


def downtime(headline: Row, rank: str) -> str:
    """Format a percentile; "over" marks a lower bound."""
    longer = "over " if headline.get(f"{rank}_is_bound") else ""
    return f"{longer}{seconds(headline.get(rank))}"


def how_long(headline: Row, slo: float, since: str | None = None) -> str:
    """Describe downtimes so far, percentiles of the downtime, and the lost time against the objective.

    :param since: time of the first loss among connections that are still down.
    """
    parts = []
    if headline.get("away"):
        longest = _between(since, headline.get("last_at"))
        parts.append(f"Still away: {number(headline['away'])}{longest}.")
    if headline.get("p50") is not None:
        never = headline.get("never_connected") or 0
        without = f" (without the {counted(never, 'first connect')})" if never else ""
        parts.append(
            f"The median downtime of {counted(headline.get('outages'), 'outage')}{without} is "
            f"{downtime(headline, 'p50')}, the 99th percentile "
            f"{downtime(headline, 'p99')}, the longest {downtime(headline, 'max')}."
        )
    lost, observed = headline.get("lost") or 0.0, headline.get("seconds") or 0.0
    if lost and observed:
        allowed = (1 - slo) * observed
        used = f"{percent(_burnt(headline, slo))} of that" if allowed else "it allows none"
        parts.append(
            f"{minutes(lost)} connection-minutes were lost of {minutes(observed)} "
            f"({percent(lost / observed)}); an objective of {percent(slo)} allows {minutes(allowed)}: {used}."
        )
    return " ".join(parts) or "No time was lost."


def curve(headline: Row) -> str:
    """Describe the outages in the curve of downtimes."""
    never = headline.get("never_connected") or 0
    outages_ = [counted(headline.get("outages"), "outage")] if headline.get("outages") else []
    first = [f"{counted(never, 'first connect')} that never succeeded"] if never else []
    of = text.joined([*outages_, *first])
    counts = (
        f"Of {of}: the share that had ended, by downtime." if of else "The share that had ended, by downtime."
    )
    lost = headline.get("away") or 0
    if not lost:
        return f"{counts} All have ended."
    whose = "The one that is away keeps" if lost == 1 else f"The {number(lost)} that are away keep"
    return f"{counts} {whose} the curve below 100 %."


def _between(since: str | None, until: str | None) -> str:
    if not since or not until:
        return ""
    passed = moment(until) - moment(since)
    return f", for up to {seconds(passed.total_seconds())}"


def minutes(value: float) -> str:
    """Convert seconds to minutes."""
    return number(round(value / 60, 3))


def _burnt(row: Row, slo: float) -> float:
    """Divide the lost time by the time that the objective allows."""
    lost, allowed = row.get("lost") or 0.0, (1 - slo) * (row.get("seconds") or 0.0)
    return lost / allowed if allowed else (float("inf") if lost else 0.0)


def budgets(services: Rows, slo: float) -> list[dict[str, Any]]:
    """Return each service's time: observed, lost, allowed, and the used share of the allowed time."""
    return [
        {
            **row,
            "seconds": row.get("seconds") or 0.0,
            "lost": row.get("lost") or 0.0,
            "allowed": (1 - slo) * (row.get("seconds") or 0.0),
            "used": _burnt(row, slo),
            "usable": 1 - (row.get("lost") or 0.0) / row["seconds"] if row.get("seconds") else None,
        }
        for row in services
    ]


# -- why ------------------------------------------------------------------------------------------


def causes(tables: Mapping[str, Rows]) -> str:
    """Explain why connections were lost, and why attempts then failed."""
    parts = []
    members = tables.get("members", ())
    stuck = sums([row for row in tables.get("away", ()) if row.get("error")], "error", "connections")
    worst = max(stuck, key=lambda name: stuck[name], default=None)
    if worst is not None:
        met = [row for row in failures(members) if row["error"] == worst]
        where = f"; {_such(met, members)}" if met else ""
        parts.append(
            f"The attempts of {number(stuck[worst])} that are away fail mostly with {text.text(worst)}: "
            f"{MEANINGS.get(worst, 'see the table')}{where}."
        )
    lost = sums(tables.get("lost_reasons", ()), "reason", "outages")
    everyone = sum(lost.values())
    if lost:
        order = sorted(lost, key=lambda name: -lost[name])
        shown = [_reason(name) for name in order[:_BOTH]]
        share = f"All {counted(everyone, 'loss')}" if lost[order[0]] == everyone else None
        share = share or f"{number(lost[order[0]])} of {counted(everyone, 'loss')}"
        second = f", {number(lost[order[1]])} {shown[1]}" if len(shown) == _BOTH else ""
        parts.append(f"{share} {shown[0]}{second}.")
    failed = [row for row in failures(members) if row["error"] not in NO_FAILURES]
    if failed and failed[0]["error"] != worst:
        most = [row for row in failed if row["error"] == failed[0]["error"]]
        count, at = _where(most, members)
        total = sum(row["failures"] for row in failed)
        share = f"All {number(total)}" if count == total else f"{number(count)} of {number(total)}"
        parts.append(f"{share} failed attempts were {text.text(most[0]['error'])} at {at}.")
    return " ".join(parts) or "No connection was lost, and no attempt failed."


def _reason(name: Any) -> str:
    return "have no reason" if name is None else f"have the reason “{text.text(name)}”"


def _such(met: Rows, members: Rows) -> str:
    """Describe the members at which an error occurred."""
    count, at = _where(met, members)
    total = sum(row["failures"] for row in met)
    share = f"all {number(total)}" if count == total else f"{number(count)} of {number(total)}"
    return f"{share} such attempts were at {at}"


def _where(met: Rows, members: Rows) -> tuple[int, str]:
    """Find the members with the most errors; if several are about equal, count them without names.

    :param met: the rows of ``failures`` of one error.
    """
    alike = [row for row in met if row["failures"] >= _ALIKE * met[0]["failures"]]
    count = sum(row["failures"] for row in alike)
    if len(alike) == 1:
        return count, text.text(alike[0]["endpoint"])
    if len(alike) < len(members):
        return count, f"{number(len(alike))} members alike"
    return count, "both members alike" if len(alike) == _BOTH else f"all {number(len(alike))} members alike"


MEANINGS = {
    "unresolved": "the name has no address",
    "refused": "nothing listens at the address",
    "unreachable": "no route to the host",
    "timed-out": "no answer in time",
    "ended": "the broker, or something before it, closed the socket during the setup",
    "not-amqp": "something else than AMQP answered",
    "tls-failed": "no common version or cipher of TLS",
    "tls-verification": "the certificate is not trusted, or of another name",
    "authentication": "wrong credentials",
    "authentication-temporary": "the broker cannot check credentials now, or they have expired",
    "closed": "the broker refuses the connection",
    "redirected": "the member is not the primary",
    "redirect-refused": "a redirect to an endpoint that is not allowed",
    "stale-primary": "the member's generation is old",
}
"""The meaning of each ``error.type``, in plain words."""


def failures(members: Rows) -> list[dict[str, Any]]:
    """Count failed attempts by endpoint and reason, the most frequent first."""
    found = [
        {"endpoint": text.endpoint(row), "error": error, "failures": count}
        for row in members
        for error, count in dict(row.get("failures") or {}).items()
        if count
    ]
    return sorted(found, key=lambda row: (-row["failures"], row["endpoint"], row["error"]))


def sums(rows: Rows, name: str, count: str) -> dict[Any, int]:
    """Add up one column by the values of another."""
    found: dict[Any, int] = {}
    for row in rows:
        found[row.get(name)] = found.get(row.get(name), 0) + row[count]
    return found


# -- comparison, and actions ----------------------------------------------------------------------


def _worse(compared: Rows) -> bool:
    return any(row["verdict"] == "worse" for row in compared)


def _compared(compared: Rows, tables: Mapping[str, Rows]) -> str:
    if not tables.get("baseline"):
        return "No former run was given; --baseline DIR compares with one."
    verdicts = {"worse": [], "better": []}  # type: dict[str, list[str]]
    for row in compared:
        if row["verdict"] in verdicts:
            verdicts[row["verdict"]].append(f"{row['name']} {row['now']}, was {row['before']}")
    said = [f"{word.capitalize()}: {_most(rows)}." for word, rows in verdicts.items() if rows]
    return " ".join(said) or "Nothing is worse or better than in the former run."


def _most(rows: list[str]) -> str:
    more = [f"{number(len(rows) - _COMPARED)} more"] if len(rows) > _COMPARED else []
    return "; ".join([*rows[:_COMPARED], *more])


def _do(actions: Rows) -> str:
    if not actions:
        return "Nothing."
    first = actions[0]
    rest = len(actions) - 1
    more = f" ({number(rest)} more below)" if rest else ""
    if first["severity"] in {"critical", "warning"}:
        return f"{first['action']}{more}"
    if first["severity"] == "notice":
        return f"Nothing urgent. What happened is over: {first['action']}{more}"
    return f"Nothing urgent. To consider: {first['action']}{more}"

"""Input tables of the report, made by hand."""

from __future__ import annotations

from typing import Any

MEMBERS = ("a.example:5671", "b.example:5671")
_NIGHT = "2026-11-21 02:03"
_STORM = {
    "storm_id": "s1",
    "cluster": "orders",
    "started_at": f"{_NIGHT}:11.400",
    "ended_at": f"{_NIGHT}:23.400",
    "clients_hit": 2000,
    "attempts": 4120,
    "peak_attempts_per_second": 2110,
    "peak_attempts_per_100ms": 260,
    "back_50": 6.1,
    "back_90": 10.2,
    "back_99": 11.4,
    "back_100": None,
    "amplification": 2.06,
    "setup_rate": 200.0,
    "ideal": 10.0,
    "ratio_to_ideal": 1.17,
    "saturated": True,
    "back": 1997,
    "gave_up": 0,
    "closed": 0,
    "replaced": 0,
    "open": 0,
    "silent": 3,
    "stragglers": 20,
    "live": 2400,
    "peak_setups_per_second": 205,
    "generation_before": 4,
    "generation_after": 5,
}


def stream(link: str | None, **facts: Any) -> dict[str, Any]:
    """Return the report's data of one stream, over a hundred minutes."""
    levels = {f"lag_seconds_{name}": value for name, value in (("p50", 0.11), ("p99", 2.4), ("max", 9.5))}
    if link is None:
        levels |= {f"lag_events_{name}": value for name, value in (("p50", 40), ("p99", 900), ("max", 2100))}
    return {
        "cluster": "west" if link is None else "east",
        "link": link,
        "minutes": 100,
        "sequence": 123_456,
        "duplicates": 7,
        "gaps": 0,
        "anomalies": {} if link is None else {"duplicates": 7, "gone": 2},
        **levels,
        "columns": [
            {
                "second": 1_795_226_400 + 60 * minute,
                "width": 60,
                **{name: value * (minute % 17) / 16 for name, value in levels.items()},
            }
            for minute in range(100)
        ],
        **facts,
    }


def tables() -> dict[str, list[dict[str, Any]]]:
    """Return one storm of two thousand connections, with rows in every table."""
    return {
        "headline": [
            {
                "first_at": f"{_NIGHT}:01.000",
                "last_at": f"{_NIGHT}:59.000",
                "connections": 2400,
                "outages": 2013,
                "clients_hit": 2002,
                "away": 6,
                "seconds": 2400 * 3600.0,
                "lost": 2000 * 6.3,
                "p50": 6.1,
                "p90": 10.2,
                "p99": 11.4,
                "max": 11.7,
                "gave_up": 1,
                "open": 0,
                "silent": 3,
                "never_connected": 2,
            }
        ],
        "summary": [{"outages": 2013.0, "p99_downtime": 11.4, "silent": 3.0, "alarms": 1.0, "events": 9e4}],
        "baseline": [
            {
                "folder": "night-before",
                "source": "/var/log/haclient",
                "summary": {"outages": 2000.0, "p99_downtime": 5.7, "silent": 3.0, "alarms": 2.0},
                "ecdf": [{"downtime": 1.2 + step / 10, "share": step / 50} for step in range(1, 51)],
            }
        ],
        "timeline": [
            {"at": 1_795_226_580, "width": 5, "lost": 2000, "in_storm": 1987, "ended": 400},
            {"at": 1_795_226_590, "width": 5, "lost": 15, "in_storm": 0, "ended": 1609},
        ],
        "promotions": [
            {"at": f"{_NIGHT}:13.500", "cluster": "orders", "generation": 5, "endpoint": MEMBERS[1]}
        ],
        "deploys": [
            {
                "at": f"{_NIGHT}:08.000",
                "service": "billing",
                "attribute": "service.version",
                "value": "2.4.1",
                "before": "2.4.0",
            }
        ],
        "service": [
            {
                "service": name,
                "connections": connections,
                "clients_hit": hit,
                "away": away,
                "seconds": connections * 3600.0,
                "lost": hit * 6.3,
            }
            for name, connections, hit, away in (("shop", 1800, 1600, 0), ("billing", 600, 402, 6))
        ],
        "hit": [
            {
                "attribute": name,
                "value": value,
                "connections": connections,
                "hit": hit,
                "away": away,
                "ended": connections // 50,
            }
            for name, value, connections, hit, away in (
                ("service.name", "shop", 1800, 1600, 0),
                ("service.name", "billing", 600, 402, 6),
                ("service.version", "2.4.1", 6, 6, 6),
                ("service.version", "2.4.0", 2394, 1996, 0),
                ("host.name", "west-node-with-a-long-name-07.example", 100, 30, 3),
                ("host.name", "west-node-08", 100, 30, 3),
            )
        ],
        "away": [
            {
                "service": "billing",
                "cluster": "orders",
                "endpoint": MEMBERS[0],
                "result": result,
                "error": "authentication",
                "connections": connections,
                "since": f"{_NIGHT}:11.400",
            }
            for result, connections in (("silent", 3), ("never_connected", 2), ("gave_up", 1))
        ],
        "lost_reasons": [
            {"endpoint": MEMBERS[0], "kind": "cut", "reason": "connection reset by peer", "outages": 2013}
        ],
        "ecdf": [{"downtime": 2.4 + step / 10, "share": step / 100} for step in range(1, 100)],
        "sites": [stream(None), stream("from-a")],
        "storms": [dict(_STORM)],
        "storm_timeline": [
            {
                "storm_id": "s1",
                "second": second / 10,
                "width": 0.1,
                "member": member,
                "attempts": 40,
                "failures": 38,
                "connected": 20 if member == MEMBERS[1] and second > 20 else 0,
            }
            for second in range(120)
            for member in MEMBERS
        ],
        "storm_marks": [{"storm_id": "s1", "second": 2.05, "event": "promoted", "member": "member-b"}],
        "storm_reasons": [{"storm_id": "s1", "error_type": "connection_refused", "failures": 1820}],
        "jitter_histogram": [
            {
                "strategy": "full",
                "ratio_from": cell / 20,
                "ratio_to": (cell + 1) / 20,
                "delays": 100,
                "ideal": 100.0,
            }
            for cell in range(20)
        ],
        "jitter": [
            {
                "strategy": "full",
                "backoff_base": 0.5,
                "round": 1,
                "delays": 2000,
                "mean_ratio": 0.49,
                "ks_statistic": 0.012,
                "judged": 2000,
                "p_value": 0.93,
                "p_adjusted": 0.93,
                "verdict": "as promised",
                "synchronisation_index": 0.02,
                "at_cap_share": 0.0,
            }
        ],
        "members": [
            {
                "server_address": member.partition(":")[0],
                "server_port": 5671,
                "attempts": 2060,
                "successes": 2000,
                "refusals": 60,
                "redirects": 12,
                "failures": {"connection_refused": 48, "redirected": 12},
                "success_rate": 0.9708,
                "connect_p50": 0.004,
                "connect_p90": 0.012,
                "connect_p99": 0.093,
                "first_seen": f"{_NIGHT}:01.000",
                "last_seen": f"{_NIGHT}:59.000",
                "losses": 2000,
                "flapping_score": 1,
                "generation_min": 4,
                "generation_max": 5,
            }
            for member in MEMBERS
        ],
        "not_recovered": [
            {
                "client_id": "billing-7",
                "connection": 1,
                "service": "billing",
                "instance": "i",
                "cluster": "orders",
                "last_seen": f"{_NIGHT}:19.400",
                "last_type": "haclient.connection.backoff",
                "last_error": "timeout",
                "last_endpoint": MEMBERS[0],
                "last_state": "reconnecting",
                "episode_result": "silent",
                "outage_id": "billing-7/1/2",
            }
        ],
        "alarms": [
            {
                "kind": "split_claim",
                "cluster": "orders",
                "at": f"{_NIGHT}:12.100",
                "detail": "generation 5 twice",
                "endpoints": list(MEMBERS),
                "severity": "critical",
                "meaning": "Two members served at the same time.",
                "action": "Stop one of them.",
            }
        ],
        "advice": [
            {
                "parameter": "accept_rate",
                "current": None,
                "proposed": "200",
                "reason": "the primary set up no more",
                "basis": "N = 2,000",
            }
        ],
        "totals": [{"table": "not_recovered", "rows": 61}, {"table": "quarantine", "rows": 2}],
    }

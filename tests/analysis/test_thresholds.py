from __future__ import annotations

import pytest

from haclient.analysis.thresholds import METRICS, Threshold, broken, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99_downtime>5", Threshold("p99_downtime", ">", 5.0)),
        (" silent >= 1 ", Threshold("silent", ">=", 1.0)),
        ("back<1e3", Threshold("back", "<", 1000.0)),
        ("lost_lines!=0", Threshold("lost_lines", "!=", 0.0)),
    ],
)
def test_a_condition_is_a_metric_a_sign_and_a_limit(text: str, expected: Threshold) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no condition"),
        ("p99_downtime", "no condition"),
        ("p99_downtime=5", "no condition"),
        ("p98_downtime>5", "'p98_downtime' is no metric; known: outages, "),
        ("p99_downtime>five", "'five' in 'p99_downtime>five' is no number"),
        ("p99_downtime>nan", "is no number"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(text)


def test_a_threshold_is_broken_when_its_condition_holds() -> None:
    given = [parse("p99_downtime>5"), parse("silent>=1"), parse("alarms>0")]
    figures = {"p99_downtime": 5.0, "silent": 1, "alarms": 3}

    assert broken(given, figures) == [
        "silent is 1, and must not be >= 1",
        "alarms is 3, and must not be > 0",
    ]


def test_a_metric_without_anything_to_measure_breaks_nothing() -> None:
    quiet = {"p99_downtime": None, "outages": 0, "max_ratio_to_ideal": None, "saturated_storms": 0}
    assert (
        broken([parse("p99_downtime>5"), parse("p99_downtime<5"), parse("max_ratio_to_ideal>2")], quiet) == []
    )


def test_a_metric_that_is_missing_breaks_its_threshold() -> None:
    figures = {"p99_downtime": None, "outages": 3}
    assert broken([parse("p99_downtime>5")], figures) == ["p99_downtime is missing, and must not be > 5"]
    assert broken([parse("p99_downtime>5")], {}) == ["p99_downtime is missing, and must not be > 5"]


def test_the_ratio_of_storms_is_missing_only_where_one_was_saturated() -> None:
    ratio = parse("max_ratio_to_ideal>2")
    assert broken([ratio], {"max_ratio_to_ideal": None, "storms": 2, "saturated_storms": 0}) == []
    assert broken([ratio], {"max_ratio_to_ideal": None, "storms": 2, "saturated_storms": 1}) == [
        "max_ratio_to_ideal is missing, and must not be > 2"
    ]


def test_a_bound_breaks_a_threshold_as_it_is() -> None:
    figures = {"p99_downtime": 3600.0, "p99_is_bound": 1, "p50_downtime": 3.0, "p50_is_bound": 1}
    assert broken([parse("p99_downtime>5"), parse("p50_downtime>5")], figures) == [
        "p99_downtime is more than 3600, and must not be > 5"
    ]


def test_every_metric_has_a_meaning() -> None:
    assert all(METRICS.values())

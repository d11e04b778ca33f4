"""The report's chart of one stream's lag over time, as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from markupsafe import Markup

from haclient.analysis.report import svg
from haclient.analysis.report.charts import silhouette
from haclient.analysis.report.svg import Frame, Size
from haclient.analysis.report.text import Row, Rows

LEVELS = (("max", "others"), ("p99", "m1"), ("p50", "m0"))
"""From the back to the front, each with the class of its colour."""

_LEFT, _RIGHT = 52, 12
_PANEL = 190
_WIDTHS = (("wide", 860, 9), ("narrow", 344, 4))
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 43200)  # minutes


def lag(name: str, stream: Row, columns: Rows) -> Markup:
    """Seconds, and events where the stream reports them, since the first minute."""
    panels = [unit for unit in ("seconds", "events") if stream.get(f"lag_{unit}_max") is not None]
    sizes = (Size(screen, width, 34 + _PANEL * len(panels), ticks) for screen, width, ticks in _WIDTHS)
    described = [
        f"half of the worst minute at most {svg.seconds(stream['lag_seconds_p50'])} behind",
        f"99 % at most {svg.seconds(stream['lag_seconds_p99'])}",
        f"never more than {svg.seconds(stream['lag_seconds_max'])}",
    ]
    title = "Lag over time: median, 99 % and longest of the worst minute"
    return svg.chart(name, title, svg.joined(described), lambda size: _lag(panels, columns, size), *sizes)


def _lag(panels: list[str], columns: Rows, size: Size) -> Markup:
    start = float(columns[0]["second"])
    end = float(columns[-1]["second"]) + float(columns[-1]["width"])
    parts: list[Markup] = []
    frame = Frame(_LEFT, size.width - _RIGHT, 0, 0, end - start, 1)
    for number, unit in enumerate(panels):
        top = number * _PANEL + 34.0
        highest = max((float(each[f"lag_{unit}_max"] or 0) for each in columns), default=0)
        levels = svg.steps(max(highest, 0.001 if unit == "seconds" else 1), 3)
        bottom = (number + 1) * _PANEL - 10.0
        frame = Frame(_LEFT, size.width - _RIGHT, top, bottom, end - start, levels[-1])
        shown = svg.seconds if unit == "seconds" else svg.number
        parts.append(svg.y_axis(frame, [(level, shown(level) if level else "0") for level in levels]))
        parts += _layers(frame, columns, unit, start)
        parts.append(svg.text_at(0, top - 16, f"lag in {unit}", "caption start"))
    parts.append(svg.x_axis(frame, list(_times(start, end, size.ticks)), unit="UTC"))
    if size.screen == "wide":  # a finger does not hover
        parts += _hits(Frame(_LEFT, frame.right, 34, frame.bottom, end - start, 1), columns, start)
    return Markup().join(parts)


def _layers(frame: Frame, columns: Rows, unit: str, start: float) -> Iterator[Markup]:
    for level, colour in LEVELS:
        heights = {float(each["second"]) - start: float(each[f"lag_{unit}_{level}"] or 0) for each in columns}
        yield svg.path(f"fill {colour}", silhouette(frame, heights, float(columns[0]["width"])))


def _hits(frame: Frame, columns: Rows, start: float) -> Iterator[Markup]:
    """A tooltip over each column: its values."""
    rect = Markup('<rect class="hit" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>')
    for each in columns:
        left = frame.x(float(each["second"]) - start)
        width = frame.x(float(each["width"])) - frame.left
        levels = (f"{level} {svg.seconds(each[f'lag_seconds_{level}'])}" for level in ("p50", "p99", "max"))
        label = f"{_moment(float(each['second'])):%Y-%m-%d %H:%M}: {', '.join(levels)}"
        sides = (left, frame.top, width, frame.bottom - frame.top)
        yield rect.format(*map(svg.px, sides), label)


def _times(start: float, end: float, count: int) -> Iterator[tuple[float, str]]:
    """Round times of day, at most about ``count``: seconds since the start, and their labels."""
    enough = (each * _MINUTE for each in _STEPS if (end - start) / (each * _MINUTE) <= count)
    step = next(enough, _STEPS[-1] * _MINUTE)
    form = "%H:%M" if step < _DAY else "%m-%d"
    first = -(-start // step) * step
    for number in range(int((end - first) // step) + 1):
        at = first + number * step
        yield at - start, f"{_moment(at):{form}}"


def _moment(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)

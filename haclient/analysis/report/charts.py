"""The report's charts as inline SVG: downtime, a storm, the jitter.

What a chart shows is also described in its text, and listed in a table beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from haclient.analysis.report import svg
from haclient.analysis.report.svg import Frame, Size
from haclient.analysis.report.text import Row, Rows

OTHERS = "others"
"""The members without a colour of their own."""

_LEFT = 46
_RIGHT = 12
_STORM = (Size("wide", 860, 400, 9), Size("narrow", 344, 400, 5))
_JITTER = (Size("wide", 860, 230, 9), Size("narrow", 344, 230, 5))
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_MARKED = (("p50", 0.5), ("p99", 0.99))
_SMOOTH = 40  # points from which on lines between them are as true as steps, and easier on the eye


# -- downtime -------------------------------------------------------------------------------------


def ecdf(points: Rows, headline: Row) -> Markup:
    """The share of the outages that had ended, by downtime."""
    description = "; ".join(
        f"{svg.percent(share)} had ended after {svg.seconds(at)}"
        for name, share in _MARKED
        if (at := headline.get(name)) is not None and not headline.get(f"{name}_is_bound")
    )
    title = "Share of the outages that had ended, by downtime"
    return svg.chart("ecdf", title, description, lambda size: _ecdf(points, headline, size))


def _ecdf(points: Rows, headline: Row, size: Size) -> Markup:
    times = [max(float(point["downtime"]), 0.001) for point in points]
    ticks = svg.log_steps(times[0], times[-1], size.ticks)
    frame = Frame(
        _LEFT, size.width - _RIGHT - 8, 14, size.height - 42, ticks[-1], 1.0, x_min=ticks[0], log_x=True
    )
    shares = [float(point["share"]) for point in points]
    joint = "L{} {}" if len(points) >= _SMOOTH else "H{}V{}"
    line = f"M{svg.px(frame.left)} {svg.px(frame.bottom)}H{svg.px(frame.x(times[0]))}" + "".join(
        joint.format(svg.px(frame.x(at)), svg.px(frame.y(share)))
        for at, share in zip(times, shares, strict=True)
    )
    line += f"H{svg.px(frame.right)}"
    area = f"{line}V{svg.px(frame.bottom)}Z"
    return Markup().join(
        (
            svg.y_axis(frame, [(share, f"{share:.0%}") for share in _SHARES]),
            svg.path("area", area),
            svg.path("line", line),
            svg.x_axis(frame, [(at, svg.seconds(at)) for at in ticks], unit="downtime (logarithmic)"),
            *(
                _dropped_line(frame, headline[name], share, name)
                for name, share in _MARKED
                if headline.get(name) and not headline.get(f"{name}_is_bound")
            ),
        )
    )


def _dropped_line(frame: Frame, at: float, share: float, name: str) -> Markup:
    """A dot at a percentile, a line down from it, and its value."""
    x, y = frame.x(at), frame.y(share)
    dot = Markup('<circle class="dot" cx="{}" cy="{}" r="4"/>').format(svg.px(x), svg.px(y))
    line = svg.path("mark", f"M{svg.px(x)} {svg.px(y)}V{svg.px(frame.bottom)}")
    end = x > (frame.left + frame.right) / 2
    label = svg.text_at(
        x + (-9 if end else 9), y + 20, f"{name}  {svg.seconds(at)}", "label end" if end else "label start"
    )
    return line + dot + label


# -- a storm --------------------------------------------------------------------------------------


def members_of(buckets: Rows) -> list[str]:
    """The members of a storm in the order of their colours, the others last."""
    names = {str(bucket["member"]) for bucket in buckets}
    return [*sorted(names - {OTHERS}), *sorted(names & {OTHERS})]


def colour(members: Sequence[str], member: str) -> str:
    """The class that colours a member."""
    return "others" if member == OTHERS else f"m{members.index(member)}"


def storm(name: str, row: Row, buckets: Rows, marks: Rows) -> Markup:
    """Attempts and connection setups a second, by member, since the primary was lost."""
    members = members_of(buckets)
    title = "Attempts and connection setups a second since the first loss, by member"
    description = svg.joined(
        [
            f"{svg.number(row.get('clients_hit'))} connections lost",
            f"{svg.number(row.get('attempts'))} attempts",
            *(f"{mark['event']} after {svg.seconds(mark['second'])}" for mark in marks),
        ]
    )
    columns = {member: [b for b in buckets if b["member"] == member] for member in members}

    def draw(size: Size) -> Markup:
        return _storm(row, columns, marks, size)

    return svg.chart(name, title, description, draw, *_STORM)


def _storm(row: Row, columns: Mapping[str, Rows], marks: Rows, size: Size) -> Markup:
    buckets = [bucket for rows in columns.values() for bucket in rows]
    end = max(float(bucket["second"]) + float(bucket["width"]) for bucket in buckets)
    ticks = svg.steps(end, size.ticks)
    middle = size.height / 2 + 2
    panels = (("attempts", 66.0, middle - 22), ("connected", middle + 34, size.height - 42.0))
    parts: list[Markup] = []
    captions: list[Markup] = []
    for (series, top, bottom), title in zip(
        panels, ("attempts a second", "connection setups a second"), strict=True
    ):
        highest = max(_sums(buckets, series).values(), default=0.0)
        rate = row.get("setup_rate") if series == "connected" else None
        levels = svg.steps(max(highest, float(rate or 0), 1.0), 3)
        frame = Frame(_LEFT, size.width - _RIGHT, top, bottom, max(end, ticks[-2]), levels[-1])
        parts += [
            svg.y_axis(frame, [(level, svg.number(level)) for level in levels]),
            *_stack(frame, columns, series),
        ]
        captions.append(svg.text_at(0, top - 14, title, "caption start"))
        if rate:
            parts.append(_rate_line(frame, float(rate)))
    ticks = [tick for tick in ticks if tick <= frame.x_max]
    top_of_all = Frame(frame.left, frame.right, 66, frame.bottom, frame.x_max, 1)
    parts.append(svg.x_axis(frame, [(at, f"{at:g} s") for at in ticks], unit="since the first loss"))
    parts += _marks(top_of_all, marks) + captions
    if size is _STORM[0]:  # a finger does not hover
        parts += _hits(top_of_all, buckets)
    return Markup().join(parts)


def _sums(buckets: Rows, series: str) -> dict[float, float]:
    """Rate of all members together, by second."""
    sums: dict[float, float] = {}
    for bucket in buckets:
        at = float(bucket["second"])
        sums[at] = sums.get(at, 0.0) + float(bucket[series]) / float(bucket["width"])
    return sums


def _stack(frame: Frame, columns: Mapping[str, Rows], series: str) -> list[Markup]:
    """A silhouette for each member, on top of those before it; the highest is drawn first, behind all."""
    heights: dict[float, float] = {}
    layers = []
    members = list(columns)
    for member, rows in columns.items():
        for bucket in rows:
            at, width = float(bucket["second"]), float(bucket["width"])
            heights[at] = heights.get(at, 0.0) + float(bucket[series]) / width
        layers.append(
            svg.path(f"fill {colour(members, member)}", silhouette(frame, heights, rows[0]["width"]))
        )
    return layers[::-1]


def silhouette(frame: Frame, heights: Mapping[float, float], width: float) -> str:
    """The outline of columns side by side; most of a report's bytes are these."""
    ground = svg.px(frame.bottom)
    data, end, level = f"M{svg.px(frame.left)} {ground}", svg.px(frame.left), ground
    for at, height in sorted(heights.items()):
        left, top = svg.px(frame.x(at)), svg.px(frame.y(height))
        if left != end and level != ground:
            data, level = f"{data}H{end}V{ground}", ground
        if top != level:
            data, level = f"{data}H{left}V{top}", top
        end = svg.px(min(frame.x(at + width), frame.right))
    return f"{data}H{end}V{ground}Z"


def _column(frame: Frame, at: float, width: float, high: float) -> str:
    left, right = frame.x(at), frame.x(at + width)
    ground = svg.px(frame.bottom)
    return f"M{svg.px(left)} {ground}V{svg.px(frame.y(high))}h{svg.px(right - left - 1)}V{ground}Z"


def _rate_line(frame: Frame, rate: float) -> Markup:
    y = frame.y(rate)
    line = svg.path("mark", f"M{svg.px(frame.left)} {svg.px(y)}H{svg.px(frame.right)}")
    return line + svg.text_at(frame.right, y - 5, f"highest setup rate {svg.number(rate)}/s", "label end")


def _marks(frame: Frame, marks: Rows) -> list[Markup]:
    """The primary's death at 0, and the first sign of its return that there is."""
    found = {mark["event"]: mark for mark in marks}
    parts = [_mark(frame, 0.0, "primary lost", 12)]
    if "promoted" in found:
        mark = found["promoted"]
        parts.append(_mark(frame, mark["second"], f"{mark['member'] or 'a member'} promoted", 27))
    elif "first back" in found:
        parts.append(_mark(frame, found["first back"]["second"], "first client back", 27))
    return parts


def _mark(frame: Frame, second: float, label: str, y: float) -> Markup:
    x = frame.x(max(second, 0.0))
    end = x > (frame.left + frame.right) / 2
    line = svg.path("event", f"M{svg.px(x)} {svg.px(y - 9)}V{svg.px(frame.bottom)}")
    text = f"{label[:40]}, {svg.seconds(second)}" if second else label
    return line + svg.text_at(x + (-5 if end else 5), y, text, "label end" if end else "label start")


def _hits(frame: Frame, buckets: Rows) -> list[Markup]:
    """A tooltip over each bucket: its values."""
    attempts, connected = _sums(buckets, "attempts"), _sums(buckets, "connected")
    widths = {float(bucket["second"]): float(bucket["width"]) for bucket in buckets}
    rect = Markup('<rect class="hit" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>')
    return [
        rect.format(
            svg.px(frame.x(at)),
            svg.px(frame.top),
            svg.px(frame.x(at + width) - frame.x(at)),
            svg.px(frame.bottom - frame.top),
            f"{at:.1f} s: {svg.number(attempts[at])} attempts/s, {svg.number(connected[at])} setups/s",
        )
        for at, width in sorted(widths.items())
    ]


# -- jitter ---------------------------------------------------------------------------------------


def jitter(name: str, cells: Rows) -> Markup:
    """How the delays of one strategy spread below the base they were drawn under."""
    total = sum(int(cell["delays"]) for cell in cells)
    description = f"{svg.number(total)} delays; the ideal is the dashed line"
    title = "Delays by their share of the base"
    return svg.chart(name, title, description, lambda size: _jitter(cells, total, size), *_JITTER)


def _jitter(cells: Rows, total: int, size: Size) -> Markup:
    shares = [int(cell["delays"]) / max(total, 1) for cell in cells]
    ideals = [float(cell["ideal"]) / max(total, 1) for cell in cells if cell.get("ideal") is not None]
    levels = svg.steps(max(*shares, *ideals, 0.01), 4)
    frame = Frame(_LEFT, size.width - _RIGHT, 14, size.height - 42, 1.0, levels[-1])
    width = 1 / len(cells)
    columns = "".join(
        _column(frame, float(cell["ratio_from"]), width, share)
        for cell, share in zip(cells, shares, strict=True)
    )
    parts = [
        svg.y_axis(frame, [(level, svg.percent(round(level, 6))) for level in levels]),
        svg.path("fill m0", columns),
        svg.x_axis(
            frame, [(at, f"{at:g}") for at in (0, 0.25, 0.5, 0.75, 1)], unit="delay as a share of its base"
        ),
    ]
    if ideals:
        y = frame.y(ideals[0])
        parts.append(svg.path("ideal", f"M{svg.px(frame.left)} {svg.px(y)}H{svg.px(frame.right)}"))
    return Markup().join(parts)

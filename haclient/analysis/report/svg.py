"""The ground of a chart: a frame that maps values to pixels, axes, and numbers as text.

Rules
-----
* Text reaches the page only through ``Markup.format``, which escapes it.
* Colours are classes; the page's style gives them their value, light or dark.
* A chart is drawn twice, for a desk and for a phone: text that shrinks with its chart cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

BLANK = "\N{EN DASH}"
"""What stands for a value that is not known."""

_MINUTE = 60.0
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Size:
    """How large a chart is drawn, in pixels, and for which screens (a class of the style)."""

    screen: str
    width: int
    height: int
    ticks: int


WIDE = Size("wide", 860, 300, 9)
NARROW = Size("narrow", 344, 260, 5)


@dataclass(frozen=True, slots=True)
class Frame:
    """A rectangle of the drawing, and the values at its edges."""

    left: float
    right: float
    top: float
    bottom: float
    x_max: float
    y_max: float
    x_min: float = 0.0
    log_x: bool = False

    def x(self, value: float) -> float:
        """Where ``value`` is, from the left."""
        low, high, at = self.x_min, self.x_max, value
        if self.log_x:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, low))
        return self.left + (self.right - self.left) * (at - low) / (high - low)

    def y(self, value: float) -> float:
        """Where ``value`` is, from the top."""
        return self.bottom - (self.bottom - self.top) * value / self.y_max


def chart(name: str, title: str, description: str, draw: Callable[[Size], Markup], *sizes: Size) -> Markup:
    """The drawing in both sizes, named and described for those who do not see it."""
    template = Markup(
        '<svg class="chart {screen}" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="{id}-t {id}-d"><title id="{id}-t">{title}</title>'
        '<desc id="{id}-d">{description}</desc>{body}</svg>'
    )
    return Markup().join(
        template.format(
            screen=size.screen,
            width=size.width,
            height=size.height,
            id=f"{name}-{size.screen}",
            title=title,
            description=description,
            body=draw(size),
        )
        for size in sizes or (WIDE, NARROW)
    )


def x_axis(frame: Frame, ticks: Iterable[tuple[float, str]], *, unit: str = "") -> Markup:
    """A base line, a tick with its label for each of ``ticks``, and what they measure below them."""
    base = Markup('<path class="axis" d="M{} {}H{}"/>').format(
        px(frame.left), px(frame.bottom), px(frame.right)
    )
    label = Markup('<path class="axis" d="M{x} {y}v4"/><text class="tick" x="{x}" y="{t}">{text}</text>')
    marks = (
        label.format(x=px(frame.x(at)), y=px(frame.bottom), t=px(frame.bottom + 17), text=text)
        for at, text in ticks
    )
    middle = (frame.left + frame.right) / 2
    name = text_at(middle, frame.bottom + 35, unit, "tick") if unit else Markup()
    return base + Markup().join(marks) + name


def y_axis(frame: Frame, ticks: Iterable[tuple[float, str]]) -> Markup:
    """Lines across the frame with their labels left of it."""
    line = Markup(
        '<path class="grid" d="M{left} {y}H{right}"/><text class="tick end" x="{t}" y="{base}">{text}</text>'
    )
    return Markup().join(
        line.format(
            left=px(frame.left),
            right=px(frame.right),
            y=px(frame.y(at)),
            t=px(frame.left - 7),
            base=px(frame.y(at) + 4),
            text=text,
        )
        for at, text in ticks
    )


def text_at(x: float, y: float, text: str, classes: str) -> Markup:
    """A text; its class says which end of it is at ``x``."""
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(classes, px(x), px(y), text)


def path(classes: str, data: str) -> Markup:
    """A path; ``data`` is made of numbers only."""
    return Markup('<path class="{}" d="{}"/>').format(classes, data)


def px(value: float) -> str:
    """A coordinate, as short as a tenth of a pixel allows."""
    return f"{value:.1f}".removesuffix(".0")


# -- ticks ----------------------------------------------------------------------------------------


def steps(highest: float, count: int) -> list[float]:
    """Round numbers from 0, about ``count`` of them; the last is not below ``highest``."""
    rough = max(highest, 1e-9) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(
        factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * (1 - 1e-9)
    )
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def log_steps(lowest: float, highest: float, count: int) -> list[float]:
    """Round numbers for a logarithmic axis from ``lowest`` to ``highest``, at most about ``count``.

    The first is not above ``lowest``, the last not below ``highest``.
    """
    powers = range(math.floor(math.log10(lowest)) - 1, math.ceil(math.log10(highest)) + 2)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        every = [factor * 10.0**power for power in powers for factor in factors]
        first = max(number for number, at in enumerate(every) if at <= lowest * (1 + 1e-9))
        last = min(number for number, at in enumerate(every) if at >= highest * (1 - 1e-9) and number > first)
        ticks = every[first : last + 1]
        if len(ticks) <= count:
            break
    return ticks


# -- values as text -------------------------------------------------------------------------------


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it."""
    if value is None:
        return BLANK
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 2 * _MINUTE:
        return f"{value:.3g} s"
    if value < 2 * _HOUR:
        return f"{value / _MINUTE:.3g} min"
    return f"{value / _HOUR:,.3g} h"


def number(value: float | None) -> str:
    """A count with separators, or a measure with three digits."""
    if value is None:
        return BLANK
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def percent(value: float | None) -> str:
    """A share; never "100 %" for less than all, nor "0 %" for more than none."""
    if value is None:
        return BLANK
    if value in (0, 1):
        return f"{value * 100:.0f} %"
    texts = (f"{value * 100:.{digits}f}" for digits in (1, 2, 3))
    text = next((text for text in texts if 0 < float(text) < 100), "")  # noqa: PLR2004 - per cent
    return f"{text.removesuffix('.0')} %" if text else f"{'< 0.001' if value < 1 else '> 99.999'} %"


def joined(parts: Sequence[str]) -> str:
    """The parts with commas and an ``and``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))

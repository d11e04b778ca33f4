"""Translation of the options of other clients.

Rules:

- An option with a name of ours is ours.
- A published option of another client is mapped, or refused by its name and with a reason: users rely on
  their settings, so none is silently dropped.  Some are accepted only with the value that is built in here.
- If an option is refused in any case, its value is not quoted: it may be a password.
- Other clients count passes over the list, this client counts attempts: a pass is one attempt per member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import Options, parse_options

Written = tuple[tuple[str, str], ...]
"""Our options, each with the name by which the user spelt it."""

_Pairs = Iterable[tuple[str, str]]
_TRUE = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterpart:
    """The translation of one option of another client.

    :param default: its default there, by the manual; empty if there is none.
    :param read: translates its text, given the number of members in the list, to our options; ``ValueError``
        has the reason if that is impossible.
    :param ours: the options that it may set.
    :param remark: for the table.
    """

    default: str
    read: Callable[[str, int], Mapping[str, str]]
    ours: tuple[str, ...] = ()
    remark: str = ""


# -- kinds of counterparts ------------------------------------------------------------------------


def equal(option: str, default: str, remark: str = "") -> Counterpart:
    """The same option under another name."""
    return Counterpart(default=default, read=lambda text, _: {option: text}, ours=(option,), remark=remark)


def seconds(*options: str, default: str, remark: str = "") -> Counterpart:
    """Seconds, for one or more options."""
    return Counterpart(
        default=default, read=lambda text, _: dict.fromkeys(options, text), ours=options, remark=remark
    )


def milliseconds(option: str, default: str, remark: str = "", *, endless: bool = False) -> Counterpart:
    """A whole number of milliseconds.

    :param endless: whether -1 means no limit.
    """

    def read(text: str, _: int) -> Mapping[str, str]:
        if endless and text == "-1":
            return {option: "none"}
        if not text.isdecimal():
            raise ValueError(f"{text!r} is not a number of milliseconds")
        return {option: f"{text}ms"}

    return Counterpart(default=default, read=read, ours=(option,), remark=remark)


def passes(default: str) -> Counterpart:
    """Number of passes over the whole list; -1 means no limit."""

    def read(text: str, members: int) -> Mapping[str, str]:
        if text == "-1":
            return {"max_attempts": "none"}
        if not text.isdecimal():
            raise ValueError(f"{text!r} is not a number of attempts, nor -1 for no limit")
        if int(text) == 0:
            raise ValueError("this client always reconnects: 0 has no counterpart")
        return {"max_attempts": str(int(text) * members)}

    remark = "passes over the list there, attempts here: multiply by the number of members; -1 is `none`"
    return Counterpart(default=default, read=read, ours=("max_attempts",), remark=remark)


def words(option: str, default: str, meanings: Mapping[str, str]) -> Counterpart:
    """One word of a list, in upper or lower case."""

    def read(text: str, _: int) -> Mapping[str, str]:
        if text.upper() not in meanings:
            raise ValueError(f"{text!r} is not one of {', '.join(meanings)}")
        return {option: meanings[text.upper()]}

    remark = ", ".join(f"`{theirs}` is `{ours}`" for theirs, ours in meanings.items())
    return Counterpart(default=default, read=read, ours=(option,), remark=remark)


def switch(
    default: str, *, on: Mapping[str, str] | str = "", off: Mapping[str, str] | str = "", remark: str = ""
) -> Counterpart:
    """True or false.

    :param on: the options that true sets here, or why it is refused; empty if true is built in.
    """

    def read(text: str, _: int) -> Mapping[str, str]:
        value = _TRUE.get(text.lower())
        if value is None:
            raise ValueError(f"{text!r} is neither true nor false")
        meaning = on if value else off
        if isinstance(meaning, str) and meaning:
            raise ValueError(f"{text!r} has no counterpart here: {meaning}")
        return {} if isinstance(meaning, str) else meaning

    ours = tuple(option for meaning in (on, off) if isinstance(meaning, Mapping) for option in meaning)
    shown = remark or "; ".join(_shown(word, meaning) for word, meaning in (("true", on), ("false", off)))
    return Counterpart(default=default, read=read, ours=tuple(dict.fromkeys(ours)), remark=shown)


def only(value: str, default: str, why: str) -> Counterpart:
    """An option accepted only with the value that is built in here."""

    def read(text: str, _: int) -> Mapping[str, str]:
        if text != value:
            raise ValueError(f"only {value!r} has a counterpart here: {why}")
        return {}

    return Counterpart(default=default, read=read, remark=f"only `{value}`: {why}")


def refused(why: str, default: str = "") -> Counterpart:
    """An option without a counterpart here."""

    def read(_text: str, _members: int) -> Mapping[str, str]:
        raise ValueError(f"has no counterpart here: {why}")

    return Counterpart(default=default, read=read, remark=f"refused: {why}")


def _shown(word: str, meaning: Mapping[str, str] | str) -> str:
    if isinstance(meaning, Mapping):
        return f"`{word}` is {', '.join(f'`{name}={value}`' for name, value in meaning.items())}"
    return f"`{word}` is refused: {meaning}" if meaning else f"`{word}` is built in"


# -- reading and showing --------------------------------------------------------------------------


def translate(
    pairs: _Pairs, counterpart: Callable[[str], Counterpart | str], members: int
) -> tuple[Options, Written]:
    """Return the options for the names and decoded texts in another client's URL.

    :param counterpart: returns the translation of a name, or the name of an option of ours.
    :param members: number of members in the list.
    :raises ClusterURLError: names the option at fault as it was written.
    """
    written: dict[str, str] = {}
    ours: list[tuple[str, str]] = []
    for spelt, text in pairs:
        for name, value in _translated(spelt, text, counterpart(spelt), members).items():
            if name in written:
                raise ClusterURLError(f"option {spelt!r}: {name} was already set by {written[name]!r}", spelt)
            written[name] = spelt
            ours.append((name, value))
    return parse_options(ours, written), tuple(written.items())


def _translated(spelt: str, text: str, what: Counterpart | str, members: int) -> Mapping[str, str]:
    if isinstance(what, str):
        return {what: text}
    try:
        return what.read(text, members)
    except ValueError as error:
        message = f"option {spelt!r}: {error}"
    raise ClusterURLError(message, spelt)

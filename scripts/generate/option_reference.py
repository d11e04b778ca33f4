"""Texts generated from the table of options: the options page, and the signature for type checkers.

``python -m scripts.generate`` writes both; tests check that both are current.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from haclient.cluster_url.foreign_options import Counterpart
from haclient.cluster_url.jms_options import ACTIVEMQ_LIST, QPID_JMS_LIST, QPID_JMS_MEMBER
from haclient.cluster_url.option_values import as_text
from haclient.cluster_url.options import ABOUT, OPTION_NAMES, Options
from haclient.cluster_url.qpid_options import QPID_CPP

_CLIENTS: tuple[tuple[str, Mapping[str, Counterpart]], ...] = (
    ("Qpid JMS", {**QPID_JMS_LIST, **QPID_JMS_MEMBER}),
    ("ActiveMQ", ACTIVEMQ_LIST),
    ("Qpid C++", QPID_CPP),
)
_FIELDS = {each.name: each for each in fields(Options)}
_COLUMNS = ("option", "default", "unit", "meaning", "values", "other clients")
_HEAD = '''"""The options of a cluster URL as keyword arguments, for type checkers.

Generated from the table in ``options`` by ``python -m scripts.generate``; do not edit.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Literal, TypedDict


class OptionArguments(TypedDict, total=False):
    """Every option by its name, as text or as a Python value; docs/options.md says what each means."""

'''


def options_table() -> str:
    """Return every option as a Markdown table."""
    head = (f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}")
    return "\n".join((*head, *map(_row, OPTION_NAMES)))


def option_types() -> str:
    """Return the source of ``option_types``."""
    lines = [f"    {name}: {annotation(name)}" for name in OPTION_NAMES if ABOUT[name].in_signature]
    return _HEAD + "\n".join(lines) + "\n"


def annotation(name: str) -> str:
    """Return the type annotation of a keyword argument."""
    about = ABOUT[name]
    choices = ", ".join(f'"{each}"' for each in about.kind.choices)
    accepts = f"Literal[{choices}]" if choices else about.kind.accepts
    return f"{accepts} | None" if about.optional else accepts


def aliases(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return, for each other client, its options that set this one."""
    return {
        client: tuple(theirs for theirs, each in counterparts.items() if name in (each.ours or (theirs,)))
        for client, counterparts in _CLIENTS
    }


def _row(name: str) -> str:
    about, kind = ABOUT[name], ABOUT[name].kind
    values = ", ".join(map(_code, kind.choices)) or f"{kind.type} {kind.range}".strip()
    cells = (
        _code(name),
        _code(as_text(_FIELDS[name].default)),
        kind.unit,
        about.meaning,
        f"{values}, or `none`" if about.optional else values,
        "; ".join(
            f"{client} {', '.join(map(_code, known))}" for client, known in aliases(name).items() if known
        ),
    )
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    return f"`{text}`"

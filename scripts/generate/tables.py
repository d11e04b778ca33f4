"""The tables of docs/ that come from tables in the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from haclient.cluster_url.foreign_options import Counterpart
from haclient.cluster_url.option_values import as_text
from haclient.cluster_url.options import OPTION_NAMES, Options
from haclient.error_catalog.entries import ENTRIES
from haclient.telemetry.schema import RESOURCE
from scripts.generate import event_types
from scripts.generate.event_types import COLUMNS, EVENT_TYPES

_OURS = {each.name: as_text(each.default) for each in fields(Options)}


def attributes_table() -> str:
    """Return the documentation's table of the resource attributes."""
    rows = [f"| `{key.name}` | `{key.column}` |" for key in RESOURCE]
    return "\n".join(("| attribute | column |", "|---|---|", *rows)) + "\n"


def keys_table() -> str:
    """Return the documentation's table of the keys of each type."""
    rows = ["| type | required in `data` | may be there |", "|---|---|---|"]
    for each in EVENT_TYPES:
        client = each.kind.startswith("haclient.connection.")
        common = event_types.CLIENT if client else event_types.MEMBER if each.subject else ()
        required = _names(column for column in each.required if column not in common)
        optional = _names(column for column in each.optional if column not in event_types.RESOURCE_COLUMNS)
        also = "client" if client else "member" if each.subject else ""
        wanted = ", ".join(filter(None, (f"*{also} keys*" if also else "", required)))
        rows.append(f"| `{each.kind}` | {wanted} | {optional} |")
    rows += [
        "| *client keys* | " + _names(event_types.CLIENT) + " | |",
        "| *member keys* | " + _names(event_types.MEMBER) + " | |",
    ]
    return "\n".join(rows) + "\n"


def values_table() -> str:
    """Return the documentation's table of the keys that have a few values."""
    rows = ["| key | on | values |", "|---|---|---|"]
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for each in EVENT_TYPES:
        for column, values in each.values.items():
            found.setdefault((column, values), []).append(each.kind.rpartition(".")[2])
    for (column, values), kinds in found.items():
        where = "all of a member" if column == "role" else ", ".join(f"`{kind}`" for kind in kinds)
        rows.append(f"| `{COLUMNS[column].name}` | {where} | {', '.join(f'`{value}`' for value in values)} |")
    return "\n".join(rows) + "\n"


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f"`{COLUMNS[column].name}`" for column in columns)


def counterparts_table(counterparts: Mapping[str, Counterpart]) -> str:
    """Return the options of another client and ours as a Markdown table.

    Options without a counterpart share a row if they have the same default and remark.
    """
    rows: dict[object, list[str]] = {}
    for name, each in counterparts.items():
        alone = name if _ours(name, each) else ""
        rows.setdefault((alone, each.default, each.remark), []).append(name)
    head = ("| theirs (default) | ours (default) | remark |", "|---|---|---|")
    return "\n".join((*head, *(_row(names, counterparts[names[0]]) for names in rows.values())))


def _row(theirs: Sequence[str], counterpart: Counterpart) -> str:
    default = f" (`{counterpart.default}`)" if counterpart.default else ""
    shown = ", ".join(f"`{each}`{default}" for each in theirs)
    ours = ", ".join(f"`{each}` (`{_OURS[each]}`)" for each in _ours(theirs[0], counterpart))
    remark = "; ".join(part for part in counterpart.remark.split("; ") if not part.endswith("is built in"))
    return f"| {shown} | {ours} | {remark} |"


def _ours(name: str, counterpart: Counterpart) -> tuple[str, ...]:
    return counterpart.ours or ((name,) if name in OPTION_NAMES else ())


def error_entries() -> str:
    """Return all entries for docs/errors.md, each below a heading with its code, which is its anchor."""
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    for code, entry in ENTRIES.items():
        yield f"### {code}\n\n{entry.meaning}\n\n**Do:** {entry.remedy}"

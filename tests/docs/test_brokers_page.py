"""The pages of brokers have the recorded refusals, the quirks of the code, and the versions of both."""

from __future__ import annotations

from haclient.core.quirks.products import PRODUCTS
from tests.docs.pages import DOCS
from tests.peers.recorded_refusals import REFUSALS, Refusal

REFUSALS_PAGE = (DOCS / "broker-answers.md").read_text()
QUIRKS_PAGE = (DOCS / "internals" / "quirks.md").read_text()


def quirks() -> list[list[str]]:
    """Return the cells of the table of quirks, without its head."""
    table = QUIRKS_PAGE.split("<!-- quirks -->\n")[1].split("<!-- /quirks -->")[0]
    rows = [line.strip().strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def row(refusal: Refusal) -> str:
    """Return a recorded refusal as a row of the page."""
    shown = refusal.shown.replace("{endpoint}", "amqp://a:5672").replace("{timeout}", "5")
    error = "none" if refusal.error is None else f"`{refusal.error}`" + (f": {shown}" if shown else "")
    situation = refusal.situation if refusal.address == "q" else f"{refusal.situation}, `{refusal.address}`"
    if refusal.situation == "unknown address":
        situation += f", {refusal.step.name.lower()}"
    condition = f"`{refusal.condition}`" if refusal.condition else ""
    return f"| {refusal.product.value} | {situation} | {condition} | {error} |"


def test_its_quirks_are_those_of_the_code() -> None:
    known = {
        (product.name, product.version, f"`{quirk.value}`")
        for product in PRODUCTS
        for quirk in product.quirks
    }
    rows = quirks()
    assert {(name, version, quirk) for name, version, quirk, _ in rows} == known
    assert len(rows) == len(known)


def test_each_product_that_was_measured_has_a_row_with_its_version() -> None:
    brokers = (DOCS / "brokers.md").read_text()
    for product in PRODUCTS:
        if product.version:
            assert f"{product.name} {product.version}" in brokers


def test_its_refusals_are_those_that_were_recorded() -> None:
    table = REFUSALS_PAGE.split("<!-- refusals -->\n")[1].split("<!-- /refusals -->")[0]
    assert table.splitlines()[2:] == [row(refusal) for refusal in REFUSALS]

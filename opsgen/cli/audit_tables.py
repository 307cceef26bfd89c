"""What a person sees of an audit: funnel, data sources, reasons with witnesses, labels."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opsgen.run.summary import AuditSummary, Shown

_WITNESS_LENGTH = 300


def audit_report(
    summary: AuditSummary, label: str, *, probe_only: bool
) -> Iterator[RenderableType]:
    """Yield the parts of an audit's report, from the funnel to one line of words.

    Args:
        summary: What is reported.
        label: The source as it was given; origins are shown as seen from it.
        probe_only: Nothing was to be measured.
    """
    yield audit_funnel(summary)
    if len(summary.sources) > 1:
        yield sources_table(summary)
    if summary.reasons:
        yield reasons_table(summary, label)
    yield labels_table(summary, label)
    yield verdict_in_words(summary, probe_only=probe_only)


def audit_funnel(summary: AuditSummary) -> Table:
    """Return the way from rows to what is left of them, reason by reason."""
    total = summary.total
    table = _table("Funnel", "", ">rows", "")
    duplicates = f"{summary.num_duplicates} repeat the source of an earlier row"
    families = f"{summary.num_families} families of near-duplicates"
    table.add_row("rows", str(total.rows), Text(f"{duplicates}; {families}", "dim"))
    for each in summary.reasons:
        table.add_row(f"  {each.status}: {each.reason}", f"-{each.count}", "")
    if total.probed:
        note = Text("pass everything that needs no device; not measured", "dim")
        table.add_row(Text("probed", "bold yellow"), Text(str(total.probed), "bold yellow"), note)
    if total.admitted or not total.probed:
        table.add_row(Text("admitted", "bold green"), Text(str(total.admitted), "bold green"), "")
    return table


def sources_table(summary: AuditSummary) -> Table:
    """Return the counts of each data source."""
    names = ("rows", "rejected", "deferred", "probed", "admitted")
    table = _table("By data source", "data_source", *(f">{name}" for name in names))
    for each in (*summary.sources, summary.total):
        table.add_row(each.data_source, *(str(getattr(each, name)) for name in names))
    return table


def reasons_table(summary: AuditSummary, label: str) -> Table:
    """Return each reason with its count and some rows that show it."""
    table = _table("Reasons", "reason", ">rows", "witnesses")
    for each in summary.reasons:
        for number, shown in enumerate(each.shown):
            head = (each.reason, str(each.count)) if number == 0 else ("", "")
            witness = shown.witness
            if len(witness) > _WITNESS_LENGTH:
                witness = f"{witness[:_WITNESS_LENGTH]} ..."
            table.add_row(*head, Text.assemble((f"{_short(shown, label)}: ", "dim"), witness))
    return table


def labels_table(summary: AuditSummary, label: str) -> Table:
    """Return what is noted of the rows and decides nothing, and their nearness to benchmarks."""
    table = _table("Labels", "", ">rows", "")
    for name, count in summary.labels.items():
        table.add_row(name, str(count), "")
    if summary.kept_fraction:
        marks = ", ".join(f"{value:.2g}" for value in summary.kept_fraction)
        table.add_row("kept_fraction", "", f"percentiles 1, 10, 50, 90, 99: {marks}")
    overlap = summary.overlap
    nearest = overlap.nearest
    note = f"nearest: {_short(nearest, label)}: {nearest.witness}" if nearest else ""
    table.add_row("compared with benchmarks", str(overlap.compared), note)
    for name in ("same_trace", "same_calls", "similar"):
        table.add_row(f"  {name}", str(getattr(overlap, name)), "")
    return table


def verdict_in_words(summary: AuditSummary, *, probe_only: bool) -> Text:
    """Return the outcome in a sentence."""
    rows = summary.total.rows
    if probe_only:
        return Text(f"{summary.num_passing} of {rows} pass everything that needs no device")
    return Text(f"{summary.total.admitted} of {rows} are admitted")


def _short(shown: Shown, label: str) -> str:
    return shown.origin.removeprefix(f"{label}/")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        is_number = name.startswith(">")
        table.add_column(
            name.removeprefix(">"), justify="right" if is_number else "left", overflow="fold"
        )
    return table

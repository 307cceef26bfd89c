"""What an audit found, counted: a pure function of the rows of its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import quantiles

from opsgen.admit import reason_order
from opsgen.errors import REASONS
from opsgen.records import Record
from opsgen.release.audits import PROBED, AuditRow

NUM_WITNESSES = 3
_MODES = ("same", "differs", "mutates")


class Shown(Record, frozen=True, kw_only=True):
    """One row that has a reason."""

    origin: str
    """Where it stands in the source."""
    witness: str
    """What shows the reason."""


class ReasonSummary(Record, frozen=True, kw_only=True):
    """The rows that share a reason."""

    status: str
    """`rejected` or `deferred`."""
    reason: str
    """First failing criterion, or the reason of a fault."""
    count: int
    """Rows."""
    shown: tuple[Shown, ...]
    """Some of them, with different witnesses where there are any."""


class SourceSummary(Record, frozen=True, kw_only=True):
    """The rows of one data source."""

    data_source: str
    """Its name."""
    rows: int
    """All of them; the other counts add up to this."""
    rejected: int
    """Rejected."""
    deferred: int
    """Deferred by a fault of the machine, or not probed."""
    probed: int
    """Not rejected by what needs no device, and not measured."""
    admitted: int
    """Admitted."""


class OverlapSummary(Record, frozen=True, kw_only=True):
    """What the rows share with benchmarks."""

    compared: int
    """Rows that were compared with a benchmark."""
    same_trace: int
    """Of these, rows with the trace of one of its tasks."""
    same_calls: int
    """Rows with other traces but the calls and inputs of one."""
    similar: int
    """Rows with neither but a source nearer than chance."""
    nearest: Shown | None
    """The most similar row, with its benchmark task; absent where none was compared."""


class AuditSummary(Record, frozen=True, kw_only=True):
    """An audit in numbers."""

    total: SourceSummary
    """All rows."""
    sources: tuple[SourceSummary, ...]
    """The same by data source."""
    num_duplicates: int
    """Rows whose normalised source stands in an earlier row."""
    num_families: int
    """Groups of near-duplicates."""
    reasons: tuple[ReasonSummary, ...]
    """Rejected rows by reason in the protocol's order, then deferred ones."""
    labels: dict[str, int]
    """Rows by label, such as `mode_class: differs`; a label decides nothing."""
    kept_fraction: tuple[float, ...]
    """Its 1st, 10th, 50th, 90th and 99th percentile over the rows that have one; else empty."""
    overlap: OverlapSummary
    """Nearness to benchmarks."""
    num_faulted: int
    """Rows that a fault of the machine or of opsgen deferred."""

    @property
    def num_passing(self) -> int:
        """Rows that pass everything that they were put to."""
        return self.total.probed + self.total.admitted


def summarise(rows: Sequence[AuditRow]) -> AuditSummary:
    """Count the rows of an audit."""
    names = dict.fromkeys(row.data_source for row in rows)
    return AuditSummary(
        total=_source(rows, "all"),
        sources=tuple(
            _source([row for row in rows if row.data_source == name], name) for name in names
        ),
        num_duplicates=len(rows) - len({row.task_id for row in rows}),
        num_families=len({row.family for row in rows}),
        reasons=_reasons(rows),
        labels=_labels(rows),
        kept_fraction=_percentiles([r.kept_fraction for r in rows if r.kept_fraction is not None]),
        overlap=_overlap(rows),
        num_faulted=sum(_is_faulted(row) for row in rows),
    )


def _source(rows: Iterable[AuditRow], name: str) -> SourceSummary:
    counts = Counter(row.status for row in rows)
    return SourceSummary(
        data_source=name,
        rows=counts.total(),
        rejected=counts["rejected"],
        deferred=counts["deferred"],
        probed=counts[PROBED],
        admitted=counts["admitted"],
    )


def _reasons(rows: Iterable[AuditRow]) -> tuple[ReasonSummary, ...]:
    groups: dict[tuple[str, str], list[AuditRow]] = {}
    for row in rows:
        if row.status in ("rejected", "deferred") and row.reason is not None:
            groups.setdefault((row.status, row.reason), []).append(row)
    ordered = sorted(groups, key=lambda key: (key[0] != "rejected", reason_order(key[1])))
    return tuple(
        ReasonSummary(
            status=status, reason=reason, count=len(group), shown=_differing(group, NUM_WITNESSES)
        )
        for status, reason in ordered
        for group in (groups[status, reason],)
    )


def _differing(rows: Iterable[AuditRow], count: int) -> tuple[Shown, ...]:
    """Return some rows, those first that have a witness of their own, otherwise in order."""
    seen: set[str] = set()
    first: list[AuditRow] = []
    others: list[AuditRow] = []
    for row in rows:
        (others if (row.witness or "") in seen else first).append(row)
        seen.add(row.witness or "")
    chosen = [*first, *others][:count]
    return tuple(Shown(origin=row.origin, witness=row.witness or "") for row in chosen)


def _labels(rows: Iterable[AuditRow]) -> dict[str, int]:
    tests: dict[str, Callable[[AuditRow], bool]] = {
        "axis_ambiguity": lambda row: bool(row.axis_ambiguity),
        "batch_mixing": lambda row: row.batch_mixing is True,
        "weak_at_1e_2": lambda row: row.weak_at_1e_2 is True,
    }
    counts = {f"mode_class: {mode}": 0 for mode in _MODES} | dict.fromkeys(tests, 0)
    for row in rows:
        if row.mode_class is not None:
            counts[f"mode_class: {row.mode_class}"] += 1
        for name, holds in tests.items():
            counts[name] += holds(row)
    return counts


def _percentiles(values: Sequence[float]) -> tuple[float, ...]:
    if len(values) < 2:
        return tuple(values) * 5
    cuts = quantiles(values, n=100, method="inclusive")
    return tuple(cuts[percent - 1] for percent in (1, 10, 50, 90, 99))


def _overlap(rows: Iterable[AuditRow]) -> OverlapSummary:
    compared = [row for row in rows if row.similarity is not None]
    others = [row for row in compared if row.same_trace is None]
    unlike = [row for row in others if row.same_calls is None]
    nearest = max(compared, key=lambda row: row.similarity or 0.0, default=None)
    return OverlapSummary(
        compared=len(compared),
        same_trace=len(compared) - len(others),
        same_calls=len(others) - len(unlike),
        similar=sum((row.similarity or 0.0) > (row.similarity_limit or 0.0) for row in unlike),
        nearest=_nearest(nearest) if nearest else None,
    )


def _nearest(row: AuditRow) -> Shown:
    return Shown(origin=row.origin, witness=f"{row.similarity:.3f} like {row.nearest}")


def _is_faulted(row: AuditRow) -> bool:
    name = (row.reason or "").partition(":")[0]
    return row.status == "deferred" and name in REASONS.keys() - {"unmeasured"}

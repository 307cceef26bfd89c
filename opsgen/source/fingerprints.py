"""Reference tables: benchmarks as hashes, so that nearness is seen without their code.

A table is one parquet file with a row per task. Its metadata holds how alike
tasks are by chance: the null distribution that similarities are judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from opsgen.errors import UsageError
from opsgen.records import Record, Task, Trace, digest
from opsgen.source.normalise import Form, read_form
from opsgen.source.shingles import jaccard, jaccard_bound, shingles

FORM = 1
"""Version of tokens and shingles. Tables of other versions cannot be compared with."""
TABLES = Path(__file__).parents[1] / "tables"
"""Folder of the tables that ship with the package."""
_METADATA = b"opsgen.fingerprints"


class Fingerprint(Record, frozen=True, kw_only=True):
    """One task of a table."""

    name: str
    """Table, folder and file, such as `kernelbench/level1/19_ReLU`."""
    level: int
    """Difficulty level; 0 where the source names none."""
    source_hash: str
    """Identity of its normalised source."""
    trace_hash: str | None
    """Identity of its trace without sizes; absent where it could not be traced."""
    sized_hash: str | None
    """The same with sizes."""
    calls: tuple[str, ...]
    """Qualified names of its public calls, in order; empty where it could not be traced."""
    signature: tuple[str, ...]
    """Inputs, `>`, outputs, as in `Trace.signature`; empty where it could not be traced."""
    num_tokens: int
    """Tokens of its `Model` in normalised form."""
    shingles: tuple[int, ...]
    """32-bit hashes of their shingles, ascending."""


class NullBin(Record, frozen=True, kw_only=True):
    """How alike unrelated tasks of similar length are.

    A pair is a task and that task of the table, among those which call another set of
    ops, that is nearest to it: of all comparisons made, the one that is reported.
    """

    min_tokens: int
    """Fewest tokens of the task; up to the next bin's."""
    num_pairs: int
    """Pairs behind the quantiles."""
    median: float
    """Of their similarities, 0 to 1, as all that follow."""
    q90: float
    """90 % quantile."""
    q99: float
    """99 % quantile."""
    q999: float
    """99.9 % quantile; of fewer than 1,000 pairs the largest."""
    max: float
    """Largest."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table in memory, ready for look-ups."""

    rows: tuple[Fingerprint, ...]
    """Tasks in order of their names."""
    null: tuple[NullBin, ...]
    """By rising length; the first begins at 0."""
    canary: str | None
    """Sized trace of a task that every table is made with: tells traces of another version."""
    digest: str
    """Of the rows, the null distribution and the canary."""
    sets: tuple[frozenset[int], ...]
    """Shingles of each row."""

    def nearest(
        self, grams: frozenset[int], skips: Callable[[int], bool] = lambda row: False
    ) -> tuple[float, int]:
        """Return the largest Jaccard index and the first row that has it; (0, -1) if all skip.

        Exact: rows are left out only where the numbers of shingles rule them out.

        Args:
            grams: Shingles of the task.
            skips: Whether a row does not count.
        """
        bounds = [jaccard_bound(grams, each) for each in self.sets]
        best = (0.0, -1)
        for row in sorted(range(len(bounds)), key=bounds.__getitem__, reverse=True):
            if bounds[row] < best[0]:
                break
            if not skips(row):
                similarity = jaccard(grams, self.sets[row])
                if best[1] < 0 or (similarity, -row) > (best[0], -best[1]):
                    best = (similarity, row)
        return best

    def limit(self, num_tokens: int) -> float:
        """Return the 99.9 % quantile of chance similarity at a length; 1 where none is known."""
        fitting = [each.q999 for each in self.null if each.min_tokens <= num_tokens]
        return fitting[-1] if fitting else 1.0


def fingerprint(task: Task, trace: Trace | None, name: str) -> Fingerprint:
    """Return the row of a task.

    Raises:
        SyntaxError: Its code does not parse.
    """
    form = read_form(task.code)
    return Fingerprint(
        name=name,
        level=task.level,
        source_hash=form.source_hash,
        trace_hash=trace.hash if trace else None,
        sized_hash=trace.sized_hash if trace else None,
        calls=trace.calls if trace else (),
        signature=trace.signature if trace else (),
        num_tokens=len(form.model_tokens),
        shingles=tuple(sorted(form_shingles(form))),
    )


def form_shingles(form: Form) -> frozenset[int]:
    """Return the shingles that similarity is counted on: those of `Model`."""
    return shingles(form.model_tokens)


def make_table(
    rows: Iterable[Fingerprint], null: Sequence[NullBin] = (), canary: str | None = None
) -> Table:
    """Return rows as a table, in the order of their names."""
    ordered = tuple(sorted(rows, key=lambda row: row.name))
    return Table(
        rows=ordered,
        null=tuple(null),
        canary=canary,
        digest=digest(FORM, ordered, list(null), canary),
        sets=tuple(frozenset(row.shingles) for row in ordered),
    )


def write_table(path: Path, table: Table) -> None:
    """Write a table as parquet, whole or not at all.

    Raises:
        OSError: The disk is full, or the folder closed to this user.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    note = {"form": FORM, "null": table.null, "canary": table.canary}
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("level", pa.int8()),
            ("source_hash", pa.string()),
            ("trace_hash", pa.string()),
            ("sized_hash", pa.string()),
            ("calls", pa.list_(pa.string())),
            ("signature", pa.list_(pa.string())),
            ("num_tokens", pa.int32()),
            ("shingles", pa.list_(pa.uint32())),
        ],
        metadata={_METADATA: msgspec.json.encode(note)},
    )
    columns = pa.Table.from_pylist([msgspec.to_builtins(row) for row in table.rows], schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    pq.write_table(columns, draft, compression="zstd")
    draft.replace(path)


def load_table(benchmark: str) -> Table:
    """Return a table by the name of a shipped one or the path of a `.parquet` file.

    It is read once per process, again when the file has changed.

    Raises:
        UsageError: There is no such table, or it was made by another version.
    """
    is_path = benchmark.endswith(".parquet")
    path = Path(benchmark) if is_path else TABLES / f"{benchmark}.parquet"
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError:
        known = ", ".join(table_names()) or "none"
        what = "no such file" if is_path else f"no such table; shipped: {known}"
        raise UsageError(f"benchmark {benchmark}: {what}") from None
    return _read(path, changed_ns)


def table_names() -> tuple[str, ...]:
    """Return the names of the shipped tables."""
    return tuple(sorted(path.stem for path in TABLES.glob("*.parquet")))


@lru_cache(maxsize=16)
def _read(path: Path, changed_ns: int) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = pq.read_table(path)
        note: dict[str, Any] = msgspec.json.decode((columns.schema.metadata or {})[_METADATA])
        if note["form"] != FORM:
            raise UsageError(
                f"benchmark {path}: fingerprints of another version; make it anew "
                "with `opsgen fingerprint`"
            )
        rows = msgspec.convert(columns.to_pylist(), tuple[Fingerprint, ...])
        null = msgspec.convert(note["null"], tuple[NullBin, ...])
    except (OSError, KeyError, pa.ArrowException, msgspec.ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"benchmark {path}: no table of fingerprints: {reason}") from None
    return make_table(rows, null, note.get("canary"))

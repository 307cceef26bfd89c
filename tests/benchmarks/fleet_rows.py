"""Runs of the fleet's benchmark read back, and rows that are held against bounds."""

from __future__ import annotations

from dataclasses import dataclass

import fleet_figures as figures
from fleet_records import Gated, Row, RunNote, Solo, Store
from msgspec.structs import replace

from opsgen.records import Attempt, MeasureEvidence


@dataclass(frozen=True)
class Loaded:
    """A run of the fleet, read back.

    Attributes:
        note: How it was set up.
        attempts: All of them.
        measured: Evidence by key.
        failed: Why not, by key.
    """

    note: RunNote
    attempts: list[Attempt]
    measured: dict[str, MeasureEvidence]
    failed: dict[str, str]

    @classmethod
    def of(cls, note: RunNote, attempts: list[Attempt]) -> Loaded:
        """Sort attempts into what was measured and what was not."""
        return cls(note, attempts, *figures.split_outcomes(attempts))

    @property
    def rate(self) -> float | None:
        """Measured tasks a minute."""
        return figures.per_minute(len(self.measured), self.note.wall_s)

    @property
    def hold_s(self) -> float:
        """Seconds that measured tasks held the device."""
        return sum(map(figures.hold_of, self.measured.values()))


@dataclass(frozen=True)
class Found:
    """All that a store holds, in the forms that the table asks for.

    Attributes:
        runs: Runs of the fleet by name.
        solos: Tasks of the sequential protocol; empty if it did not run.
        gates: Tasks of the comparison of gates; empty if it did not run.
        notes: Of all runs.
        why_not_two: Why nothing is known of a second GPU.
    """

    runs: dict[str, Loaded]
    solos: list[Solo]
    gates: list[Gated]
    notes: dict[str, RunNote]
    why_not_two: str = "not run"

    @classmethod
    def read(cls, store: Store, num_gpus: int) -> Found:
        """Read everything that a store holds, on a host with so many GPUs."""
        notes = store.runs
        alone = {"sequential", "gate"} & notes.keys()
        return cls(
            runs={
                name: Loaded.of(note, store.lines(name, Attempt))
                for name, note in notes.items()
                if name not in alone
            },
            solos=store.lines("sequential", Solo) if "sequential" in alone else [],
            gates=store.lines("gate", Gated) if "gate" in alone else [],
            notes=notes,
            why_not_two="one GPU" if num_gpus < 2 else "not run",
        )

    def whether_one_host(self, *names: str) -> str:
        """Return a warning where runs that are compared come from different machines."""
        hosts = sorted({self.notes[name].host for name in names})
        return "" if len(hosts) == 1 else f"on different machines: {', '.join(hosts)}"


def at_least(part: str, name: str, figure: float | None, bound: float, unit: str = "") -> Row:
    """Return the row of a figure that is to reach a bound."""
    short = None if figure is None else 1 - figure / bound
    return Row(
        part=part,
        name=name,
        figure=figure,
        unit=unit,
        bound=f">= {bound:g}",
        verdict=_verdict(short),
    )


def at_most(part: str, name: str, figure: float | None, bound: float, unit: str = "") -> Row:
    """Return the row of a figure that is to stay within a bound."""
    short = None if figure is None else figure / bound - 1
    return Row(
        part=part,
        name=name,
        figure=figure,
        unit=unit,
        bound=f"<= {bound:g}",
        verdict=_verdict(short),
    )


def _verdict(short: float | None) -> str:
    if short is None:
        return "not measured"
    return "holds" if short <= 0 else f"short by {100 * short:.1f} %"


def noted(row: Row, *notes: str) -> Row:
    """Return the row with what else must be known to read it."""
    return replace(row, note="; ".join(filter(None, notes)))


def unbound(row: Row) -> Row:
    """Return the row as a mere figure."""
    return replace(row, bound="", verdict="")

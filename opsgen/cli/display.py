"""What a person sees: the funnel, a task beside its baselines, a certificate in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from opsgen.admit import Case, Change, Funnel
from opsgen.ops import Op
from opsgen.records import (
    DeviceState,
    MeasureEvidence,
    PlanLine,
    Record,
    SpeedOfLight,
    Status,
    Timing,
    Verdict,
)
from opsgen.sampler import Composite, draw_text

_STYLES = {Status.ADMITTED: "green", Status.REJECTED: "red", Status.DEFERRED: "yellow"}
_MAX_PICKS = 3


def funnel_table(funnel: Funnel, lines: Sequence[PlanLine] = ()) -> Table:
    """Return the way from plan lines to admitted tasks, reason by reason."""
    table = Table(title="Funnel", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("tasks", justify="right")
    table.add_column("")
    barren = [line for line in lines if line.task is None]
    tries = Counter(reason.partition(":")[0] for line in lines for reason in line.tries)
    if lines:
        note = ", ".join(f"{reason} {count}" for reason, count in tries.most_common(3))
        table.add_row("plan lines", str(len(lines)), Text(f"tries drawn again: {note}", "dim"))
    if barren:
        table.add_row("no legal graph", f"-{len(barren)}", Text("after all tries", "dim"))
    table.add_row("sampled", str(funnel.sampled), "")
    for status, counts in (("rejected", funnel.rejected), ("deferred", funnel.deferred)):
        for count in counts:
            table.add_row(f"  {status}: {count.reason}", f"-{count.count}", "")
    table.add_row(Text("admitted", "bold green"), Text(str(funnel.admitted), "bold green"), "")
    return table


def class_table(funnel: Funnel, want: dict[str, int]) -> Table:
    """Return the counts of each quota class beside what is wanted."""
    table = Table(box=None, pad_edge=False)
    for name in ("class", "wanted", "sampled", "admitted", "rejected", "deferred"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for row in funnel.classes:
        counts = (row.sampled, row.admitted, row.rejected, row.deferred)
        table.add_row(
            row.data_source, str(want.get(row.data_source, 0)), *[str(count) for count in counts]
        )
    return table


def certificate(case: Case, verdict: Verdict) -> RenderableType:
    """Return what is known of one task: verdict, graph, baselines, margins, source."""
    task = case.task
    head = Text.assemble(
        (task.task_id, "bold"),
        f"  {task.data_source} line {task.line}  ",
        (verdict.status.value, f"bold {_STYLES[verdict.status]}"),
    )
    parts: list[RenderableType] = [head]
    parts += [
        Text(f"  {finding.criterion}: {finding.witness}", _STYLES[verdict.status])
        for finding in verdict.failed
    ]
    if task.graph:
        parts += [Text(draw_text(task.graph), "cyan")]
    if case.measure:
        parts += [Text("\n".join(_measured(case.measure)))]
    source = Syntax(task.code, "python", theme="ansi_dark", background_color="default")
    return Group(*parts, Panel(source, title="source", title_align="left", border_style="dim"))


def _measured(evidence: MeasureEvidence) -> list[str]:
    width = max([8, *(len(timing.mode) for timing in evidence.timings)])
    lines = [_timed(timing, width) for timing in evidence.timings]
    lines += _speedups(evidence)
    if evidence.speed_of_light is not None:
        lines.append(_least(evidence.speed_of_light))
    if evidence.answers:
        nearest = min(evidence.answers, key=lambda answer: answer.margin)
        lines.append(f"nearest lazy answer: {nearest.name} at {nearest.margin:.3g} x the tolerance")
    if evidence.tolerances:
        values = ", ".join(f"{tolerance.value:.2e}" for tolerance in evidence.tolerances)
        lines.append(f"tolerance {values} of an element's scale")
    if evidence.picks:
        more = len(evidence.picks) - _MAX_PICKS
        lines += [f"autotuning picked {pick}" for pick in evidence.picks[:_MAX_PICKS]]
        lines += [f"autotuning picked {more} more"] if more > 0 else []
    if evidence.precision:
        lines.append(f"float32 in {_listed(evidence.precision)}")
    if evidence.state is not None:
        lines.append(f"device right after timing: {_described(evidence.state)}")
    return lines


def _least(least: SpeedOfLight) -> str:
    parts = [f"{least.moved_bytes / 1e9:.3g} GB at {least.bandwidth_gb_s:,.0f} GB/s"]
    if least.rate_tflop_s is not None:
        parts.append(f"{least.flops / 1e9:.3g} GFLOP at {least.rate_tflop_s:.3g} TFLOP/s")
    return f"the device needs {least.time_ms:.4g} ms at best: {', '.join(parts)}"


def _timed(timing: Timing, width: int) -> str:
    samples = f"{len(timing.samples_ms)} samples"
    if timing.num_overtaken:
        samples += f", {timing.num_overtaken} of them perhaps with gaps between launches"
    return (
        f"{timing.mode:<{width}} {timing.median_ms:9.4f} ms   quartiles {timing.q25_ms:.4f} to "
        f"{timing.q75_ms:.4f}, {samples}"
    )


def _speedups(evidence: MeasureEvidence) -> list[str]:
    by_mode = {timing.mode: timing.median_ms for timing in evidence.timings}
    if not {"eager", "compile"} <= by_mode.keys():
        return []
    eager_ms, compile_ms = by_mode["eager"], by_mode["compile"]
    others = [mode for mode in by_mode if mode not in ("eager", "compile")]
    more = "".join(f", {mode} {eager_ms / by_mode[mode]:.2f} x" for mode in others)
    advisory = "; host clock: advisory" if evidence.is_advisory else ""
    return [f"compile is {eager_ms / compile_ms:.2f} x as fast as eager{more}{advisory}"]


def _described(state: DeviceState) -> str:
    parts = [
        f"{name} {value:g} {unit}".strip()
        for name, value, unit in (
            ("multiprocessors at", state.sm_mhz, "MHz"),
            ("memory at", state.memory_mhz, "MHz"),
            ("", state.temperature_c, "C"),
            ("", state.power_w, "W"),
        )
        if value is not None
    ]
    throttled = f"slowed down by {', '.join(state.throttle)}" if state.throttle else "not throttled"
    return ", ".join([*parts, throttled])


def changes_text(changes: Iterable[Change]) -> Text:
    """Return which tasks changed verdict, and why, two lines each."""
    text = Text()
    for change in changes:
        before = change.old_status.value if change.old_status else "not judged"
        now = _joined(change.new_status.value, change.new_reason)
        text.append(f"{change.task_id}  {_joined(before, change.old_reason)} -> ")
        text.append(f"{now}\n", _STYLES[change.new_status])
        text.append(f"    {change.witness}\n" if change.witness else "", "dim")
    return text


def _joined(status: str, reason: str | None) -> str:
    return f"{status}: {reason}" if reason else status


def ops_table(ops: Iterable[Op]) -> Table:
    """Return catalogue entries with their kind, ranks and spellings."""
    table = Table(box=None, pad_edge=False)
    for name in ("op", "kind", "ranks", "spellings"):
        table.add_column(name, overflow="fold")
    for op in ops:
        ranks = " ".join(str(rank) for rank in op.ranks)
        names = ", ".join(dict.fromkeys(spelling.name for spelling in op.spellings))
        table.add_row(op.name, op.kind.value, ranks, names)
    return table


def composites_table(composites: Iterable[Composite]) -> Table:
    """Return composites with where they come from and what they are compared with."""
    table = Table(box=None, pad_edge=False)
    for name in ("composite", "family", "licence", "origin"):
        table.add_column(name, overflow="fold")
    for one in composites:
        # What has a licence is the public class or function that tests compare it with.
        table.add_row(one.name, one.family, one.license or "", one.origin)
    return table


class CatalogueCounts(Record, frozen=True, kw_only=True):
    """How many ops there are, by what they are."""

    entries: int
    """All entries."""
    ops: int
    """Entries that count as ops of their own."""
    names: int
    """Qualified torch names under which tasks can write ops."""
    variants: int
    """Entries that compute what another one does."""
    blocks: int
    """Entries that serve composites only."""
    views: int
    """Entries that move and compute nothing."""
    nondeterministic: int
    """Entries that do not repeat bitwise on a GPU; no task holds them."""
    nondeterministic_backward: int
    """Entries that tasks hold and whose gradients do not repeat bitwise on a GPU."""
    by_kind: dict[str, int]
    """Ops of each kind."""
    by_role: dict[str, int]
    """Ops of each role in a fused kernel."""
    by_stratum: dict[str, int]
    """Legal ordered pairs of each fusion stratum; empty if only one kind is shown."""
    by_family: dict[str, int]
    """Composites of each family; empty if only one kind is shown."""
    public: int
    """Composites that tests compare with a public class or function."""


def counts_table(counts: CatalogueCounts) -> Table:
    """Return the catalogue's counts, a line each."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("ops", f"{counts.ops} under {counts.names} qualified names")
    table.add_row("by kind", _listed(counts.by_kind))
    table.add_row("by role", _listed(counts.by_role))
    table.add_row(
        "beside them",
        f"{counts.variants} variants, {counts.blocks} blocks of composites, {counts.views} views",
    )
    table.add_row(
        "determinism",
        f"{counts.nondeterministic} entries do not repeat on a GPU and are not sampled, "
        f"{counts.nondeterministic_backward} more not in their gradients",
    )
    if counts.by_stratum:
        pairs = sum(counts.by_stratum.values())
        table.add_row("pairs", f"{pairs} legal ordered pairs of ops and their variants")
        table.add_row("by stratum", _listed(counts.by_stratum))
    if counts.by_family:
        composites = sum(counts.by_family.values())
        table.add_row(
            "composites",
            f"{composites}, of which tests compare {counts.public} with a public class and "
            f"{composites - counts.public} with the formula of a paper",
        )
        table.add_row("by family", _listed(counts.by_family))
    return table


def _listed(counts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def console() -> Console:
    """Return the console for results; progress goes to standard error."""
    return Console(highlight=False, soft_wrap=False)

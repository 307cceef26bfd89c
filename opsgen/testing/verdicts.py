"""Strategies for verdicts without the evidence behind them."""

from __future__ import annotations

from hypothesis import strategies as st

from opsgen.records import Finding, Status, Verdict, digest

_REASONS = {
    Status.REJECTED: ("executes", "nontrivial", "runtime_window", "timeout:compile"),
    Status.DEFERRED: ("gpu_oom", "infrastructure", "unmeasured"),
}


@st.composite
def verdicts(draw: st.DrawFn, *, data_source: str = "torch#2", line: int = 0) -> Verdict:
    """A verdict of any status on one line of a class's plan."""
    status = draw(st.sampled_from(Status))
    failed: tuple[Finding, ...] = ()
    if status is not Status.ADMITTED:
        reason = draw(st.sampled_from(_REASONS[status]))
        failed = (Finding(criterion=reason, witness=f"{reason} does not hold"),)
    return Verdict(
        task_id=digest(data_source, line),
        data_source=data_source,
        line=line,
        status=status,
        reason=failed[0].criterion if failed else None,
        witness=failed[0].witness if failed else None,
        failed=failed,
    )

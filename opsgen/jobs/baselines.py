"""The modes of one task: compiled outside the lease, held against eager and timed within it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opsgen.child.nvml import read_state
from opsgen.device import (
    Clock,
    CompileFacts,
    GatedCompile,
    Mode,
    PeakMemory,
    compiler_faults,
    lend_lease,
    mode_named,
    read_precision,
    watched_autotuning,
)
from opsgen.jobs.measuring import Measuring
from opsgen.records import Tolerance
from opsgen.verify import (
    Inputs,
    Leaves,
    Reference,
    assumed_tolerances,
    comparison_margin,
    guarded,
    output_leaves,
    specs_of,
    task_code,
)

COMPILE = "compile"
"""The mode whose compile is described and whose output is held against eager."""


class Baselines:
    """The timed modes of a reference.

    Args:
        measuring: The measurement.
        reference: The reference; its tensors may be freed while nothing is run.
    """

    def __init__(self, measuring: Measuring, reference: Reference) -> None:
        self._on = measuring
        self._reference = reference
        self._modes = [mode_named(name) for name in measuring.request.modes]
        self._compiled: dict[str, GatedCompile] = {}
        lends = measuring.is_cuda and lend_lease(measuring.context.lease.hold)
        self._waits = {mode.name for mode in self._modes if mode.tries_out and not lends}

    def compile(self, inputs: Inputs) -> None:
        """Compile what needs no lease, for the metadata of `inputs`."""
        for mode in self._modes:
            if mode.is_compiled and mode.name not in self._waits:
                self._compile(mode, inputs)

    def compare(self, inputs: Inputs, tolerances: tuple[Tolerance, ...] | None) -> None:
        """Compile what is left, make first calls, and hold the compiled output against eager.

        Without tolerances they are assumed, and eager is described, which nobody has run yet.
        """
        on = self._on
        peak = PeakMemory(on.device)
        expected = self._reference.run(inputs)
        if tolerances is None:
            on.seen["peak_bytes"] = peak.read()
            on.seen["observed"] = specs_of(expected)
            tolerances = assumed_tolerances(self._reference, inputs, expected)
        on.charge("expected")
        for mode in self._modes:
            if mode.name in self._waits:
                self._compile(mode, inputs)
                on.charge("compile")
        for mode in self._modes:
            if mode.is_compiled:
                actual = self._call_first(mode, inputs)
                on.charge("autotune")
                if mode.name == COMPILE:
                    on.seen["compiled"] = specs_of(actual)
                    margin = comparison_margin(actual, expected, tolerances)
                    on.seen["compile_margin"] = margin
                    on.charge("compare")
                del actual

    def time(self, draws: list[Inputs]) -> None:
        """Time all modes, interleaved."""
        on, request = self._on, self._on.request
        clock = Clock(on.device, on.context.lease)
        calls = {mode.name: guarded(self._call_of(mode), "time") for mode in self._modes}
        with torch.no_grad():
            on.seen["timings"] = clock.measure_modes(calls, draws, request.max_s_per_mode)
        on.charge("time")
        on.seen["launch_floor_ms"] = clock.measure_launch_floor()
        if on.is_cuda:
            on.seen["precision"] = read_precision()
            on.seen["state"] = read_state(on.context.lease.device_id)
        on.charge("floor")

    def _call_of(self, mode: Mode) -> Callable[..., Any]:
        call = self._compiled[mode.name] if mode.is_compiled else self._reference.model
        return mode.under_precision(call)

    def _compile(self, mode: Mode, inputs: Inputs) -> None:
        gated = GatedCompile(self._reference.model, mode.compile_options)
        with task_code("compile"):
            facts: CompileFacts = mode.under_precision(gated.compile)(inputs)
        self._compiled[mode.name] = gated
        if mode.name == COMPILE:
            self._on.seen["compile_s"] = facts.compile_s
            self._on.seen["num_graphs"] = facts.num_graphs
            self._on.seen["num_generated_kernels"] = facts.num_generated_kernels

    def _call_first(self, mode: Mode, inputs: Inputs) -> Leaves:
        """Return what compiled code gives at its first call, in which it tunes itself."""
        call = self._call_of(mode)
        how = self._on.request.autotuning if self._on.is_cuda else None
        # Some kernels are compiled when called.
        with watched_autotuning(how) as tuned, task_code("compile"), compiler_faults():
            actual = output_leaves(call(*inputs))
        if mode.name == COMPILE:
            self._on.seen["picks"] = tuned.picks
            # A compile in the first call would have been missed by the gate.
            num_compiles = self._compiled[mode.name].num_compiles
            self._on.seen["num_graphs"] = max(self._on.seen["num_graphs"], num_compiles)
        return actual

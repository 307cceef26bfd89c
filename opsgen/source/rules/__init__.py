"""Rules that a task's code must keep, read off its syntax tree without running it.

One function per rule, one line per rule in `RULES`, with the criterion that it speaks to.
Every fault rejects a task, so a rule speaks only where the code leaves no doubt; the probe
sees the rest. Code without faults may be run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from opsgen.records import SourceFault
from opsgen.source.rules import (
    arguments,
    execution,
    inputs,
    liveness,
    placement,
    prose,
    randomness,
    safety,
    state,
    structure,
)
from opsgen.source.rules.task import Reading, Rule
from opsgen.source.rules.walk import read_outline


class SourceRule(NamedTuple):
    """A rule and the criterion that its breaches speak to."""

    criterion: str
    find: Rule


RULES: dict[str, SourceRule] = {
    "one_model": SourceRule("self_contained", structure.one_model),
    "entry_points": SourceRule("self_contained", structure.entry_points),
    "top_level": SourceRule("self_contained", structure.top_level),
    "duplicates": SourceRule("self_contained", structure.duplicates),
    "replaced_methods": SourceRule("self_contained", structure.replaced_methods),
    "placeholders": SourceRule("self_contained", structure.placeholders),
    "lazy_modules": SourceRule("self_contained", structure.lazy_modules),
    "imports": SourceRule("self_contained", safety.imports),
    "denied_name": SourceRule("self_contained", safety.denied_names),
    "reflection": SourceRule("self_contained", safety.reflection),
    "patches": SourceRule("self_contained", safety.patches),
    "decorators": SourceRule("self_contained", safety.decorators),
    "prose": SourceRule("self_contained", prose.leftovers),
    "random_forward": SourceRule("self_contained", randomness.random_forward),
    "functional_dropout": SourceRule("self_contained", randomness.functional_dropout),
    "random_structure": SourceRule("self_contained", randomness.random_structure),
    "unused_arguments": SourceRule("self_contained", arguments.unused_arguments),
    "shadowed_arguments": SourceRule("self_contained", arguments.shadowed_arguments),
    "stored_arguments": SourceRule("self_contained", arguments.stored_arguments),
    "plain_tensors": SourceRule("self_contained", state.plain_tensors),
    "unregistered_modules": SourceRule("self_contained", state.unregistered_modules),
    "module_tensors": SourceRule("self_contained", inputs.module_tensors),
    "counters": SourceRule("self_contained", state.counters),
    "global_state": SourceRule("self_contained", state.global_state),
    "waits": SourceRule("executes", execution.waits),
    "data_shapes": SourceRule("executes", execution.data_shapes),
    "mode_dependence": SourceRule("executes", execution.mode_dependence),
    "prints": SourceRule("executes", execution.prints),
    "plain_leaves": SourceRule("executes", execution.plain_leaves),
    "host_tensors": SourceRule("executes", placement.host_tensors),
    "hidden_randomness": SourceRule("deterministic", randomness.hidden_randomness),
    "unused_modules": SourceRule("live", liveness.unused_modules),
    "dead_values": SourceRule("live", liveness.dead_values),
    "unused_inputs": SourceRule("live", liveness.unused_inputs),
    "no_inputs": SourceRule("stable_inputs", inputs.no_inputs),
    "seeded_inputs": SourceRule("stable_inputs", inputs.seeded_inputs),
    "fixed_inputs": SourceRule("stable_inputs", inputs.fixed_inputs),
    "nested_draw": SourceRule("stable_inputs", inputs.nested_draw),
}
"""All rules by name, in the order in which their faults are listed."""

_FENCE = "`" * 3


def check_source(code: str) -> tuple[SourceFault, ...]:
    """Return every rule that `code` breaks, one fault a place; nothing of it is run."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return (_unparsed(code, error),)
    try:
        return tuple(dict.fromkeys(_faults(Reading(read_outline(tree, code)))))
    except RecursionError:
        return (SourceFault(rule="parses", line=1, witness="nested too deeply"),)


def _faults(task: Reading) -> Iterator[SourceFault]:
    for name, rule in RULES.items():
        for line, witness in rule.find(task):
            yield SourceFault(criterion=rule.criterion, rule=name, line=line, witness=witness)


def _unparsed(code: str, error: Exception) -> SourceFault:
    for number, text in enumerate(code.splitlines(), 1):
        if text.lstrip().startswith(_FENCE):
            return SourceFault(rule="prose", line=number, witness="code fence")
    line = getattr(error, "lineno", None) or 1
    detail = str(error).partition("\n")[0] or type(error).__name__
    return SourceFault(rule="parses", line=line, witness=detail)

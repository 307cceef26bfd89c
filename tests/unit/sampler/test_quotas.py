"""What a recipe asks of topologies, dtypes, gradients, values and sizes is what the plan gives."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.errors import UsageError
from opsgen.ops import CATALOGUE
from opsgen.recipe import SampleConfig
from opsgen.sampler import Line, Plan, resolve
from opsgen.sampler.pairs import num_seen
from opsgen.sampler.strata import CYCLE, STRATA, Cell, balance
from opsgen.sampler.table import Contents, Paths, Table

BROAD = SampleConfig(
    dags=0.3,
    gradients=0.1,
    prior=0.5,
    values=0.5,
    layouts=0.3,
    odd_sizes=True,
    held_out=True,
    min_axis=512,
    calibration="h200",
    dtypes={"float32": 2.0, "bfloat16": 1.0, "float16": 1.0},
)


@cache
def broad_lines() -> tuple[Line, ...]:
    plan = Plan(17, BROAD)
    return tuple(plan.line("torch#3", number) for number in range(400))


@given(
    st.dictionaries(st.sampled_from(sorted(STRATA)), st.floats(0.01, 1.0), min_size=1),
    st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3),
)
def test_balance_gives_both_kinds_of_shares(rows: dict[str, float], parts: list[float]) -> None:
    names = ("chain", "inputs", "shared")
    columns = {Cell(None, name): part for name, part in zip(names, parts, strict=True)}
    shares = balance(rows, columns, lambda _: True)
    for stratum, share in rows.items():
        found = sum(part for cell, part in shares.items() if cell.stratum == stratum)
        assert found == pytest.approx(share / sum(rows.values()))
    for cell, share in columns.items():
        found = sum(part for each, part in shares.items() if each.topology == cell.topology)
        assert found == pytest.approx(share / sum(parts))


def test_balance_lets_others_make_up_for_what_is_impossible() -> None:
    columns = {Cell(None, "chain"): 0.8, Cell(None, "inputs"): 0.2}
    shares = balance(
        {"row": 0.5, "scan": 0.5}, columns, lambda cell: cell != Cell("scan", "inputs")
    )
    assert shares == pytest.approx(
        {Cell("row", "chain"): 0.3, Cell("row", "inputs"): 0.2, Cell("scan", "chain"): 0.5},
        abs=1e-6,
    )


def test_lines_are_what_their_cells_say() -> None:
    found = [line for line in broad_lines() if line.sampled]
    assert len(found) >= 0.95 * len(broad_lines())
    for line in found:
        assert line.sampled is not None
        graph, cell = line.sampled.graph, line.cell
        reads = [arg for node in graph.nodes for arg in node.args]
        num_inputs = len(graph.inputs) - (graph.grad_output is not None)
        is_shared = len(set(reads)) < len(reads)
        assert (graph.grad_output is not None) == cell.is_gradient
        assert (graph.dtype != "float32") == cell.is_half
        assert len(graph.outputs) == (2 if cell.topology == "outputs" else 1)
        assert is_shared or cell.topology != "shared"
        if cell.topology == "inputs":
            assert num_inputs > 1
        if cell.topology in ("chain", "outputs"):
            assert not is_shared
            assert num_inputs == 1
        if cell.is_seen is not None:
            assert (num_seen(line.sequence[0], line.sequence[1]) > 0) == cell.is_seen


def test_shares_hold_over_a_cycle() -> None:
    plan = Plan(17, BROAD)
    cells = [plan.cell("torch#3", number) for number in range(CYCLE)]
    wanted = {
        "gradient": 0.1,
        "half": 0.5,
        "chain": 0.9 * 0.7 + 0.1,
        "inputs": 0.09,
        "shared": 0.09,
        "outputs": 0.09,
    }
    found = Counter(cell.topology for cell in cells)
    found["gradient"] = sum(cell.is_gradient for cell in cells)
    found["half"] = sum(cell.is_half for cell in cells)
    for name, share in wanted.items():
        assert abs(found[name] - CYCLE * share) <= 0.01 * CYCLE, (name, found[name])
    strata = Counter(cell.stratum for cell in cells)
    # Not every cell has pairs of real code.
    assert 0.2 * CYCLE <= sum(cell.is_seen is True for cell in cells) <= 0.46 * CYCLE
    for stratum, share in BROAD.strata.items():
        assert abs(strata[stratum] - CYCLE * share) <= 0.01 * CYCLE, stratum


def test_workloads_have_their_roles_and_one_is_held_out() -> None:
    for line in broad_lines():
        if line.sampled is None:
            continue
        roles = [workload.role for workload in line.sampled.workloads]
        assert roles == ["default", "smaller", "held_out", "twin"]
        default, _, held_out, _ = line.sampled.workloads
        assert default.sizes != held_out.sizes


def test_inputs_have_the_axis_and_values_and_layouts_that_are_asked_for() -> None:
    found = [line.sampled for line in broad_lines() if line.sampled]
    for sampled in found:
        default = sampled.workloads[0]
        assert max(size for spec in default.inputs for size in spec.shape) >= 512
    known = [each for sampled in found for each in sampled.graph.inputs if each.name == "x"]
    others = sum(each.layout != "contiguous" for each in known)
    assert 0.2 * len(known) <= others <= 0.4 * len(known)
    assert sum(each.draw != "normal" for each in known) >= 0.3 * len(known)
    widths = [size for sampled in found for size in sampled.workloads[0].sizes.values()]
    assert sum(width % 2 for width in widths if width > 8) >= 0.1 * len(widths)


def test_reserves_come_from_where_no_line_has_been() -> None:
    plan = Plan(3, SampleConfig(dags=0.0, calibration="h200"))
    lines = [plan.line("torch#2", number) for number in range(400)]
    assert all(line.sampled for line in lines)
    pairs = Counter(line.sequence for line in lines)
    # The smallest strata hold few dozens of pairs.
    assert sum(count > 1 for count in pairs.values()) <= 4


def test_gradient_tables_hold_what_has_a_gradient() -> None:
    table = Table(Contents(2, "epilogue", paths=Paths(is_gradient=True)))
    plain = Table(Contents(2, "epilogue"))
    assert 0 < table.size < plain.size
    for number in range(0, table.size, 7):
        assert all(not CATALOGUE[name].has_operands for name in table.sequence(number))


def test_common_pairs_stand_in_a_table_of_real_code_more_than_once() -> None:
    table = Table(Contents(2, "epilogue", is_seen=True))
    found = Counter(table.sequence(number) for number in range(table.size))
    assert found
    assert found == {pair: num_seen(*pair).bit_length() for pair in found}


def test_impossible_mixes_are_one_clear_line() -> None:
    with pytest.raises(UsageError, match=r"sample\.dtypes: 'int8' is none of"):
        Plan(1, SampleConfig(dtypes={"int8": 1.0}))
    with pytest.raises(UsageError, match=r"sample\.strata: the shares add up to nothing"):
        Plan(1, SampleConfig(strata={"row": 0.0}))


def test_a_gradient_task_returns_one_gradient_for_each_input() -> None:
    for line in broad_lines():
        if line.sampled is None or line.sampled.graph.grad_output is None:
            continue
        graph, default = line.sampled.graph, line.sampled.workloads[0]
        resolution = resolve(graph, default.sizes)
        assert default.inputs[-1].shape == resolution.shapes[graph.outputs[0]]
        assert [spec.shape for spec in default.outputs] == [default.inputs[0].shape]

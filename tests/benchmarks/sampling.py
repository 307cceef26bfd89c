"""Tasks sampled, sized and rendered in one second of one core.

Run: python tests/benchmarks/sampling.py [NUM] [--recipe FILE.toml]... [--graphs NUM]

Prints the rate of every class, for two machines' targets or for the classes that recipes
want, and then opsgen beside NNSmith (arXiv 2207.13066; `pip install opsgen[benchmarks]`):
graphs a second at two and five ops, and the share whose output holds NaN or infinities on
normal inputs. NNSmith's graphs are generated, made concrete and materialised as modules;
opsgen's are sampled, sized to a target time and rendered to source, and it is their tiny twins
that are run, on the inputs that a task asks for. Everyone has the same core and one thread,
and seconds are those of the process: other load on the machine does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from opsgen.recipe import SampleConfig, read_recipe
from opsgen.render import render_source, render_task
from opsgen.sampler import Line, Plan
from opsgen.verify import seeded

CASES = (
    ("cpu targets", SampleConfig(target_ms=(0.5, 20.0), calibration="cpu")),
    ("h200 targets", SampleConfig(target_ms=(1.2, 30.0), calibration="h200")),
)
CLASSES = ("torch#1", "torch#2", "torch#3", "transformers")
# NNSmith leaves out ops with limited domains, such as logarithms, unless it is told not to.
METHODS = (("symbolic-cinit", False), ("concolic", False), ("symbolic-cinit", True))
LEVELS = (2, 5)


@dataclass
class Rival:
    """What one generator did at one number of ops."""

    name: str
    num_made: int = 0
    seconds: float = 0.0
    num_run: int = 0
    num_nonfinite: int = 0

    @property
    def rate(self) -> float:
        return self.num_made / self.seconds

    def row(self, level: int, fastest: float) -> str:
        share = self.num_nonfinite / max(1, self.num_run)
        return (
            f"{level:3d}  {self.name:32} {self.num_made:6d} {self.rate:9.1f} "
            f"{fastest / self.rate:8.1f} {self.num_nonfinite:5d} of {self.num_run:<5d} {share:6.1%}"
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("num", nargs="?", type=int, default=5000, help="lines of each class")
    parser.add_argument("--recipe", action="append", default=[], type=Path, help="a recipe")
    parser.add_argument("--graphs", type=int, default=60, help="graphs of each rival; 0: none")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{'':14} {'class':12} {'lines':>6} {'tasks':>6} {'sized/s':>8} {'written/s':>9}")
    for title, seed, config, classes in _plans(args.recipe):
        plan = Plan(seed, config)
        for data_source in classes:
            num_tasks, *seconds = _sample(plan, data_source, args.num)
            sized, written = (num_tasks / each for each in seconds)
            print(
                f"{title:14} {data_source:12} {args.num:6d} {num_tasks:6d} "
                f"{sized:8.0f} {written:9.0f}"
            )
    if args.graphs:
        _compare(args.num, args.graphs)


def _plans(recipes: list[Path]) -> Iterator[tuple[str, int, SampleConfig, tuple[str, ...]]]:
    for title, config in () if recipes else CASES:
        yield title, 1, config, CLASSES
    for path in recipes:
        recipe = read_recipe(path)
        yield recipe.name, recipe.seed, recipe.sample, tuple(recipe.release.want)


def _sample(plan: Plan, data_source: str, num_lines: int) -> tuple[int, float, float]:
    """Return how many tasks came of it, and the seconds without and with their source."""
    plan.line(data_source, 0)  # the legal table is enumerated once
    start_s = time.process_time()
    lines = [plan.line(data_source, number) for number in range(num_lines)]
    sized_s = time.process_time() - start_s
    num_tasks = sum(bool(render_task(line).code) for line in lines if line.sampled)
    return num_tasks, sized_s, time.process_time() - start_s


def _compare(num_lines: int, num_graphs: int) -> None:
    print(f"\nops  {'generator':32} {'made':>6} {'made/s':>9} {'ratio':>8} {'NaN or Inf in':>14}")
    plan = Plan(1, CASES[1][1])
    opsets = _nnsmith_ops()
    for level in LEVELS:
        num_tasks, _, seconds = _sample(plan, f"torch#{level}", num_lines)
        bad = [_has_nonfinite_twin(plan.line(f"torch#{level}", n)) for n in range(num_graphs)]
        run = [each for each in bad if each is not None]
        ours = Rival(f"opsgen torch#{level}", num_tasks, seconds, len(run), sum(run))
        print(ours.row(level, ours.rate), flush=True)
        for method, with_limited in METHODS if opsets else ():
            rival = Rival(f"NNSmith {method}{', all ops' if with_limited else ''}")
            _run_nnsmith(rival, opsets[with_limited], method, level, num_graphs)
            print(rival.row(level, ours.rate), flush=True)
    if not opsets:
        print("NNSmith is not installed: pip install opsgen[benchmarks]")


def _has_nonfinite_twin(line: Line) -> bool | None:
    if line.sampled is None:
        return None
    twin = line.sampled.workloads[-1]
    space: dict[str, Any] = {}
    exec(compile(render_source(line.sampled.graph, twin.sizes), "twin", "exec"), space)
    with seeded(line.number), torch.no_grad():
        model = space["Model"](*space["get_init_inputs"]()).eval()
        inputs = space["get_inputs"]()
    return _is_nonfinite(lambda: model(*inputs))


def _is_nonfinite(run: Callable[[], Any]) -> bool:
    # Gradient tasks ask for gradients of their inputs themselves.
    out = run()
    leaves = out if isinstance(out, tuple | list) else (out,)
    return any(not leaf.isfinite().all() for leaf in leaves)


def _nnsmith_ops() -> list[list[Any]]:
    """Return what NNSmith has: ops of unlimited domains, and all; nothing where it is missing."""
    with tempfile.TemporaryDirectory() as cache, _silence():
        os.environ["XDG_CACHE_HOME"] = cache  # what it finds belongs to this run only
        try:
            from nnsmith.materialize import Model
            from nnsmith.narrow_spec import auto_opset
        except ImportError:
            return []
        kind = Model.init("torch", backend_target="cpu")
        return [list(auto_opset(kind, None, vulops=limited)) for limited in (False, True)]


def _run_nnsmith(rival: Rival, opset: list[Any], method: str, level: int, num_graphs: int) -> None:
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize import Model

    kind = Model.init("torch", backend_target="cpu")
    for seed in range(num_graphs):
        with _silence():
            start_s = time.process_time()
            with seeded(seed):
                made = model_gen(
                    opset=opset, method=method, seed=seed, max_nodes=level, timeout_ms=10_000
                )
                net = kind.from_gir(made.make_concrete()).native_model.eval()
            rival.seconds += time.process_time() - start_s
            rival.num_made += 1
            with seeded(seed), torch.no_grad():
                inputs = [_normal(spec) for spec in net.input_like.values()]
                rival.num_nonfinite += _is_nonfinite(lambda: net(*inputs))  # noqa: B023
            rival.num_run += 1


def _normal(spec: Any) -> torch.Tensor:
    """Draw what a tensor of NNSmith's may hold: normal numbers, small integers, coin flips."""
    dtype = spec.dtype.torch()
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(spec.shape, dtype=dtype)
    high = 2 if dtype is torch.bool else 8
    return torch.randint(0, high, spec.shape).to(dtype)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """NNSmith reports each op that this torch does not have on the standard streams."""
    logging.disable(logging.CRITICAL)
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield
    logging.disable(logging.NOTSET)


if __name__ == "__main__":
    main()

"""What the fleet's benchmark does in one process without a fleet.

Run by `fleet.py` as: python fleet_alone.py sequential|gate TASKS.jsonl.gz WARM.jsonl.gz OUT ...

`sequential` is the protocol of KernelBench's `generate_baseline_time.py` and the
`measure_ref_program_time` and `time_execution_with_cuda_event` behind it, in our
own words: per task and mode the source is executed, inputs are drawn on the CPU
under seed 42 and moved, the model is built and moved, a few calls go untimed,
then each trial waits for the device, overwrites a buffer of 256 MiB against the
L2 cache, and is bracketed by events; the first trial is dropped. Otherwise than
there models are in eval mode, which is what a task's baselines are of, and types
stay as they are. Further trials, beside the clock, wait until the device spins:
a bracket that opens on an idle device counts the launch. `gate` times the fleet's compiled code against what plain
`torch.compile` gives, interleaved.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from fleet_records import Alone, Gated, Solo, Times

from opsgen.child import LocalContext, list_gpus
from opsgen.device import Clock, GatedCompile, read_environment, reset_compiler, settle
from opsgen.records import Task, decode_line, encode_line
from opsgen.verify import Reference, TaskCodeError, derive_seed, seeded, task_code, task_module

NUM_WARMUP = 3
NUM_DROPPED = 1
SEED = 42
NUM_QUEUED = 30
SPIN_CYCLES = 4_000_000
"""Two milliseconds of an H200, in which a call is queued whole."""
FLUSH_SHAPE = (32, 1024, 1024)

Call = Callable[[], object]


def main() -> int:
    """Do one of the two and write what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=("sequential", "gate"))
    parser.add_argument("tasks", type=Path)
    parser.add_argument("warm", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--max-s", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    begin_s = time.monotonic()
    if options.device == "cpu":
        torch.set_num_threads(1)  # as children there
    context = _context(options.device)
    environment = read_environment(options.device)
    with context.lease.hold():
        _do(options, context, options.warm, is_warming=True)
        warm_s = time.monotonic()
        found = _do(options, context, options.tasks, is_warming=False)
    alone = Alone(
        environment=environment,
        start_s=round(warm_s - begin_s, 3),
        wall_s=round(time.monotonic() - warm_s, 3),
        solos=tuple(each for each in found if isinstance(each, Solo)),
        gates=tuple(each for each in found if isinstance(each, Gated)),
    )
    options.out.write_bytes(encode_line(alone))
    return 0


def _context(device: str) -> LocalContext:
    return LocalContext(device, list_gpus()[0].uuid if device == "cuda" else "cpu")


def _do(
    options: argparse.Namespace, context: LocalContext, path: Path, *, is_warming: bool
) -> list[Solo | Gated]:
    with gzip.open(path, "rb") as lines:
        tasks = [decode_line(line, Task) for line in lines]
    if is_warming:
        tasks = tasks[:1]  # brings up the device and the compiler
    if options.kind == "sequential":
        num_trials = 1 if is_warming else options.trials
        return [time_alone(task, options.device, num_trials) for task in tasks]
    return [compare_gate(task, context, options.max_s, options.seed) for task in tasks]


def time_alone(task: Task, device: str, num_trials: int) -> Solo:
    """Time one task in both modes, each from its source on."""
    begin_s = time.perf_counter()
    times: dict[str, Times] = {}
    failure, further_s = None, 0.0
    try:
        for mode in ("eager", "compile"):
            with task_module(task.code) as module, task_code("time"), torch.no_grad():
                samples_ms, queued_ms, queued_s = _time_mode(module, mode, device, num_trials)
            times[mode] = Times(
                mean_ms=mean(samples_ms),
                median_ms=median(samples_ms),
                samples_ms=tuple(samples_ms),
                queued_ms=queued_ms,
            )
            further_s += queued_s
    except (TaskCodeError, torch.OutOfMemoryError) as error:
        failure, times = _in_a_line(error), {}
    wall_s = time.perf_counter() - begin_s - further_s
    reset_compiler()
    settle(device)
    return Solo(task_id=task.task_id, wall_s=wall_s, times=times, failure=failure)


def _time_mode(
    module: types.ModuleType, mode: str, device: str, num_trials: int
) -> tuple[list[float], float | None, float]:
    """Return the trials, and of further ones without launches' gaps the median and seconds."""
    with seeded(SEED, device):
        inputs = module.get_inputs()
    with seeded(SEED, device):
        model = module.Model(*module.get_init_inputs())
    inputs = [each.to(device) if isinstance(each, torch.Tensor) else each for each in inputs]
    model = model.to(device).eval()
    if mode == "compile":
        torch._dynamo.reset()
        model = torch.compile(model)
    _wait(device)
    for _ in range(NUM_WARMUP):
        model(*inputs)
        _wait(device)
    if device == "cuda":
        torch.cuda.empty_cache()
    read_ms = _read_event_ms if device == "cuda" else _read_host_ms
    readings = [read_ms(lambda: model(*inputs)) for _ in range(num_trials + NUM_DROPPED)]
    if device == "cpu":
        return readings[NUM_DROPPED:], None, 0.0
    begin_s = time.perf_counter()
    queued = [_read_event_ms(lambda: model(*inputs), SPIN_CYCLES) for _ in range(NUM_QUEUED)]
    return readings[NUM_DROPPED:], median(queued), time.perf_counter() - begin_s


def _read_event_ms(call: Call, num_cycles: int = 0) -> float:
    make_event: Callable[..., Any] = torch.cuda.Event
    torch.cuda.synchronize()
    begin, end = make_event(enable_timing=True), make_event(enable_timing=True)
    flush = torch.empty(FLUSH_SHAPE, dtype=torch.int64, device="cuda")
    flush.fill_(42)
    del flush
    if num_cycles:
        torch.cuda._sleep(num_cycles)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def _read_host_ms(call: Call) -> float:
    begin_ns = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin_ns) / 1e6


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def compare_gate(task: Task, context: LocalContext, max_s: float, seed: int) -> Gated:
    """Time the code behind the gate and that of plain `torch.compile`, interleaved.

    The second compile finds what the first left in the compiler's caches, so both run the same
    kernels with the same picks and only the wrapper differs.
    """
    reset_compiler()
    try:
        with task_module(task.code) as module, task_code("time"):
            gated_ms, plain_ms = _time_gate(task, module, context, max_s, seed)
    except (TaskCodeError, torch.OutOfMemoryError) as error:
        return Gated(task_id=task.task_id, failure=_in_a_line(error))
    finally:
        reset_compiler()
        settle(context.device)
    return Gated(task_id=task.task_id, gated_ms=gated_ms, plain_ms=plain_ms)


def _time_gate(
    task: Task, module: types.ModuleType, context: LocalContext, max_s: float, seed: int
) -> tuple[float, float]:
    weight_seed = derive_seed(seed, task.task_id, "weights", 0)
    reference = Reference.build(module, context.device, weight_seed)
    reference.state.redraw(weight_seed)
    draws = [reference.draw(derive_seed(seed, task.task_id, "draw", each)) for each in range(2)]
    gated = GatedCompile(reference.model)
    gated.compile(draws[0])
    plain = torch.compile(reference.model, fullgraph=True, dynamic=False)
    with torch.no_grad():
        gated(*draws[0])
        plain(*draws[0])
        clock = Clock(context.device, context.lease)
        timings = clock.measure_modes({"gated": gated, "plain": plain}, draws, max_s)
    medians = {timing.mode: timing.median_ms for timing in timings}
    return medians["gated"], medians["plain"]


def _in_a_line(error: BaseException) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:300]


if __name__ == "__main__":
    sys.exit(main())

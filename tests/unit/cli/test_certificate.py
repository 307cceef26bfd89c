"""What `opsgen show` prints of a measurement: on a CPU no more than there is to say."""

from __future__ import annotations

from rich.console import Console
from steady import steady

from opsgen.admit import Case
from opsgen.cli.display import certificate
from opsgen.records import DeviceState, MeasureEvidence, Status, Verdict
from opsgen.source import foreign_task

TASK = foreign_task("x = 1", origin="a.py")
VERDICT = Verdict(
    task_id=TASK.task_id,
    data_source=TASK.data_source,
    line=TASK.line,
    status=Status.ADMITTED,
    reason=None,
    witness=None,
    failed=(),
)


def shown(**content: object) -> list[str]:
    """Return what is printed between the head and the source."""
    evidence = MeasureEvidence(environment_id="here", **content)  # type: ignore[arg-type]
    console = Console(width=160, force_terminal=False)
    with console.capture() as capture:
        console.print(certificate(Case(task=TASK, measure=evidence), VERDICT))
    lines = capture.get().splitlines()
    end = next(number for number, line in enumerate(lines) if "source" in line)
    return [line.rstrip() for line in lines[1:end]]


def test_a_cpu_has_nothing_to_add() -> None:
    assert shown(timings=(steady("eager", 4.0), steady("compile", 2.0))) == [
        "eager       4.0000 ms   quartiles 4.0000 to 4.0000, 7 samples",
        "compile     2.0000 ms   quartiles 2.0000 to 2.0000, 7 samples",
        "compile is 2.00 x as fast as eager; host clock: advisory",
    ]


def test_a_gpu_tells_how_it_was() -> None:
    lines = shown(
        timings=(steady("eager", 4.0, num_overtaken=3), steady("compile", 2.0)),
        is_advisory=False,
        picks=tuple(f"triton_red_{number} XBLOCK=8" for number in range(5)),
        precision={"matmul": "ieee", "conv": "tf32"},
        state=DeviceState(sm_mhz=1980, temperature_c=54, power_w=412.5, throttle=("sw_power_cap",)),
    )
    assert lines[0].endswith("7 samples, 3 of them perhaps with gaps between launches")
    assert lines[1].endswith("7 samples")
    assert lines[2:] == [
        "compile is 2.00 x as fast as eager",
        "autotuning picked triton_red_0 XBLOCK=8",
        "autotuning picked triton_red_1 XBLOCK=8",
        "autotuning picked triton_red_2 XBLOCK=8",
        "autotuning picked 2 more",
        "float32 in matmul ieee, conv tf32",
        "device right after timing: multiprocessors at 1980 MHz, 54 C, 412.5 W, slowed down by "
        "sw_power_cap",
    ]
    assert shown(state=DeviceState(sm_mhz=1980))[-1].endswith("1980 MHz, not throttled")


def test_further_modes_stand_beside_the_usual_ones() -> None:
    names = ("eager", "compile", "compile_max_autotune", "eager_high")
    lines = shown(timings=tuple(steady(name, 4.0 / n) for n, name in enumerate(names, start=1)))
    starts = [line.index(" ms") for line in lines[:4]]
    assert len(set(starts)) == 1  # one column
    assert lines[4] == (
        "compile is 2.00 x as fast as eager, compile_max_autotune 3.00 x, eager_high 4.00 x; "
        "host clock: advisory"
    )

"""Tasks that harm a GPU, their process or both, and good ones to put around them.

All are tasks in the KernelBench form that do nothing amiss on a CPU; on a GPU each
does what its name says. They come as sampled ones, with a graph that says nothing
of the harm, so that they reach the device as sampled tasks do.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.ops import CATALOGUE
from opsgen.records import (
    Estimate,
    Graph,
    Input,
    MeasureRequest,
    Node,
    Task,
    TensorSpec,
    Workload,
)
from opsgen.render import render_source
from opsgen.source import foreign_task

SIZES = {"batch_size": 1024, "features": 1024}
SMALLER = {"batch_size": 128, "features": 1024}
BESIDE_SHARE = 0.4
"""What `oom_beside` takes of the card's memory: twice, since what it gave back is cut up by
smaller tensors before it asks again."""

_SOURCE = """{imports}import torch
import torch.nn as nn
{kernel}

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        out = x * 2.0
        if x.is_cuda:
{harm}
        return out


batch_size = 1024
features = 1024


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return []
"""

# Page 1 of a process's memory is never mapped, and no tensor is that far away from it.
_SCATTER = """import triton
import triton.language as tl


@triton.jit
def scatter(out, offset, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK).to(tl.int64) + offset
    tl.store(out + place, 1.0)

"""
_OUT_OF_BOUNDS = "scatter[(1,)](out, (4096 - out.data_ptr()) // 4, BLOCK=128)"

# An atomic must see what others write meanwhile, so the loop cannot be taken out.
_SPIN = """import triton
import triton.language as tl


@triton.jit
def spin(flag):
    seen = tl.atomic_add(flag, 0)
    while seen == 0:
        seen = tl.atomic_add(flag, 0)

"""


@dataclass(frozen=True)
class Faulty:
    """A task that does harm.

    Attributes:
        harm: Statements of `forward`, on a GPU only.
        reason: Of the fault that it must end in; None if it ends with evidence.
        kernel: What stands before the model.
        imports: What is imported beside torch.
        preload: Whether it may be called ahead, outside the lease: that of which the place
            matters may not.
        modes: Baselines to ask for.
    """

    harm: tuple[str, ...]
    reason: str | None
    kernel: str = ""
    imports: str = ""
    preload: bool = True
    modes: tuple[str, ...] = ("eager", "compile")

    @property
    def code(self) -> str:
        """The task's source."""
        harm = "\n".join(f"            {line}" for line in self.harm)
        return _SOURCE.format(imports=self.imports, kernel=self.kernel, harm=harm)


_WAIT = "torch.cuda.synchronize()"
_TOTAL = "torch.cuda.get_device_properties(x.device).total_memory"

FAULTY = {
    "illegal_access": Faulty((_OUT_OF_BOUNDS, _WAIT), "cuda_sticky", _SCATTER),
    # Nobody waits within the call: what comes next is told of it.
    "late_fault": Faulty((_OUT_OF_BOUNDS,), "cuda_sticky", _SCATTER),
    # Here another exception is on its way when the fault comes.
    "hidden_fault": Faulty(
        (_OUT_OF_BOUNDS, "raise ValueError('nothing to see here')"), "cuda_sticky", _SCATTER
    ),
    "device_assert": Faulty(
        (
            "index = torch.full((8, 1), 1 << 20, dtype=torch.int64, device=x.device)",
            "out = out + torch.gather(x[:8], 1, index).sum().item()",
        ),
        "cuda_sticky",
    ),
    "oom": Faulty(
        (f"torch.empty(2 * {_TOTAL}, dtype=torch.uint8, device=x.device)",),
        "gpu_oom",
        preload=False,
    ),
    "oom_beside": Faulty(
        (
            f"size = int({BESIDE_SHARE} * {_TOTAL})",
            "block = torch.empty(size, dtype=torch.uint8, device=x.device)",
            "block[-1:].zero_()",
        ),
        None,
        preload=False,
        modes=("eager",),
    ),
    "hang": Faulty(
        ("flag = torch.zeros(1, dtype=torch.int32, device=x.device)", "spin[(1,)](flag)", _WAIT),
        "timeout:eager",
        _SPIN,
        preload=False,
    ),
    # The same without a compiler: 74 years of an H200.
    "long_sleep": Faulty(
        ("torch.cuda._sleep(1 << 62)", _WAIT),
        "timeout:eager",
        preload=False,
    ),
    "kill": Faulty(
        ("os.kill(os.getpid(), signal.SIGKILL)",),
        "crash",
        imports="import os\nimport signal\n\n",
        preload=False,
    ),
    "lie": Faulty(
        ("raise RuntimeError('CUDA error: an illegal memory access was encountered')",), None
    ),
}
"""By name."""

_CHAINS = (
    ("relu",),
    ("tanh", "exp"),
    ("sigmoid", "relu", "tanh"),
    ("linear",),
    ("linear", "tanh"),
    ("relu", "linear"),
)


def faulty_task(name: str, *, is_foreign: bool = False) -> Task:
    """Return a task of `FAULTY` as if it were sampled, or as foreign code."""
    code = FAULTY[name].code
    return foreign_task(code, origin=name) if is_foreign else _sampled(name, ("relu",), code, SIZES)


def faulty_request(name: str, device: str = "cuda") -> MeasureRequest:
    """Ask for the measurement of a faulty task."""
    faulty = FAULTY[name]
    return MeasureRequest(
        task=faulty_task(name),
        device=device,
        modes=faulty.modes,
        max_s_per_mode=0.02,
        preload=faulty.preload,
        seed=1,
    )


def good_requests(num: int, device: str = "cuda") -> list[tuple[str, MeasureRequest]]:
    """Ask for the measurement of `num` small tasks that do nothing amiss."""
    requests = []
    for number in range(num):
        ops = _CHAINS[number % len(_CHAINS)]
        sizes = {"batch_size": 1024 * (1 + number // len(_CHAINS)), "features": 1024}
        name = f"good-{number}-{'-'.join(ops)}"
        task = _sampled(name, ops, render_source(_graph(ops), sizes), sizes)
        request = MeasureRequest(
            task=task, device=device, modes=("eager", "compile"), max_s_per_mode=0.02, seed=1
        )
        requests.append((name, request))
    return requests


def _sampled(name: str, ops: tuple[str, ...], code: str, sizes: dict[str, int]) -> Task:
    return Task(
        task_id=name,
        data_source=f"torch#{len(ops)}",
        line=0,
        level=len(ops),
        ops=tuple(CATALOGUE[op].spellings[0].name for op in ops),
        code=code,
        workloads=(_workload(sizes), _workload(SMALLER)),
        graph=_graph(ops),
        graph_hash=name,
        family=name,
        estimate=Estimate(eager_ms=0.1, traffic_bytes=1, flops=1, peak_bytes=1, num_terms=1024),
    )


def _graph(ops: tuple[str, ...]) -> Graph:
    shape = Input(name="x", dims=("batch_size", "features"), dtype="float32", draw="normal")
    nodes = tuple(_node(op, place) for place, op in enumerate(ops))
    return Graph(dtype="float32", inputs=(shape,), nodes=nodes, outputs=(len(ops),))


def _node(op: str, place: int) -> Node:
    is_linear = op == "linear"
    return Node(
        op=op,
        args=(place,),
        attrs={"bias": True} if is_linear else {},
        sizes={"out_features": "features"} if is_linear else {},
    )


def _workload(sizes: dict[str, int]) -> Workload:
    spec = TensorSpec(shape=(sizes["batch_size"], sizes["features"]), dtype="float32")
    return Workload(sizes=sizes, inputs=(spec,), outputs=(spec,))

"""Users' own ops: a Python file with `OPS = (Op(...), ...)`, given with `--ops my_ops.py`.

The file uses the catalogue's own form (`opsgen.ops.entry.Op`, whose docstring
says what each field means). This is all of it::

    from math import prod

    from opsgen.ops import Interval, Kind, Op, spell

    OPS = (
        Op(
            "squared_relu",                         # new, in lower case
            Kind.POINTWISE,                         # decides its stratum
            (spell("F.relu({x}).square()", name="torch.square"),),
            ranks=(2, 3, 4),                        # of its first input
            range=Interval(0.0, float("inf")),      # what it may return
            flattens=(Interval(-float("inf"), 0.0),),
            flops=lambda ins, attrs, out: 2 * prod(out),
            passes=2.0,
        ),
    )

- `spell(call, init)` is source text: `{x}`, `{y}`, `{z}`, `{w}` are the
  inputs, `{self}` the module that `init` makes, and any attribute stands by
  its name. Sources see `torch`, `nn` and `F`, and nothing of the file.
- `attrs(draw, ins)` chooses attributes with `draw.pick(name=choices)` and new
  sizes with `draw.size(name, choices)`; None says that the op does not suit
  the shape. It must not choose by other means, since choices are replayed.
- `operands` gives further inputs as `Operand`s, `out` the exact output shape.
- `domain` and `range` keep logarithms and roots from what they cannot take;
  `props` are names of `PROPS`, and only those that hold.

Every entry is checked on load: on random shapes of each of its ranks the
attributes must replay, and shapes, sizes and costs must be what they say.
Whether torch agrees shows in the probe of each task. The file runs in this
process and in every child, as any module would; hosts of a fleet beyond this
one get the same file with `opsgen worker --ops`. Its digest is a key of the
recipe, `sample.user_ops`, so runs and releases say which ops they had.

Load before the first plan: the sampler's tables are made once a process.
"""

from __future__ import annotations

import hashlib
import os
import random
import runpy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsgen.errors import MeasureError, UsageError
from opsgen.ops.catalogue import CATALOGUE
from opsgen.ops.dims import Dim, Shape, evaluate, expression
from opsgen.ops.draws import draws_within
from opsgen.ops.entry import PROPS, Attrs, Kind, Op, Operand, Shapes
from opsgen.ops.intervals import Interval

_VARIABLE = "OPSGEN_OPS"  # how children learn of the file: its digest, a colon, its path
_NUM_SHAPES = 40
_SIZES = (2, 3, 4, 6, 8, 12, 16, 32)
# What a mistake in the file, or in the lambdas of its entries, may raise.
_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    TypeError,
    ValueError,
)

_state: dict[str, str] = {}


def loaded_ops() -> str | None:
    """Return the digest of the file that was loaded into this process; None without one."""
    return _state.get("digest")


def seal_catalogue() -> None:
    """Refuse to load ops from now on: tables have been made of the catalogue as it is."""
    _state["sealed"] = "yes"


def require_ops(digest: str | None) -> None:
    """Check that the ops of a recipe's `sample.user_ops` are those that are loaded.

    Raises:
        UsageError: They are not; the message says what to give.
    """
    loaded = loaded_ops()
    if digest == loaded:
        return
    if digest is None:
        raise UsageError("sample.user_ops: ops are loaded that this recipe does not name")
    have = "none are loaded" if loaded is None else f"those loaded are {loaded}"
    raise UsageError(f"sample.user_ops: needs the ops {digest}, {have}; give their file as --ops")


def load_ops(path: Path) -> str:
    """Add the ops of a file to the catalogue, in this process and in children to come.

    Args:
        path: A Python file that defines `OPS`.

    Returns:
        The file's digest, for `sample.user_ops`. Loading the same file again does nothing.

    Raises:
        UsageError: It cannot be read or run, an entry is wrong, or it comes too late.
    """
    try:
        digest = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if loaded_ops() == digest:
        return digest
    if loaded_ops() is not None or "sealed" in _state:
        raise UsageError(f"{path}: ops are loaded once, before anything is sampled")
    try:
        found = runpy.run_path(str(path)).get("OPS")
    except _MISTAKES as error:
        raise UsageError(f"{path}: {_told(error)}") from error
    if not isinstance(found, tuple) or not found:
        raise UsageError(f"{path}: must define OPS = (Op(...), ...)")
    ops = _checked(found, str(path))
    entries = dict(sorted({**CATALOGUE, **ops}.items()))
    CATALOGUE.clear()
    CATALOGUE.update(entries)
    _state["digest"] = digest
    os.environ[_VARIABLE] = f"{digest}:{path.resolve()}"
    return digest


def load_inherited_ops() -> None:
    """Load in a child what its parent has loaded, if it has.

    Raises:
        MeasureError: The file is gone, or is another one by now.
    """
    digest, _, path = os.environ.get(_VARIABLE, "").partition(":")
    if not digest or loaded_ops() == digest:
        return
    try:
        found = load_ops(Path(path))
    except UsageError as error:
        raise MeasureError(str(error)) from error
    if found != digest:
        raise MeasureError(f"{path}: has changed since the run began")


def _checked(found: Iterable[object], where: str) -> dict[str, Op]:
    ops: dict[str, Op] = {}
    for number, op in enumerate(found):
        if not isinstance(op, Op):
            raise UsageError(f"{where}: OPS[{number}] is no Op")
        problem = check_entry(op)
        if problem is None and (op.name in CATALOGUE or op.name in ops):
            problem = "there is an op of that name already"
        if problem is not None:
            raise UsageError(f"{where}: {op.name}: {problem}")
        ops[op.name] = replace(op, is_backward_deterministic=op.is_deterministic)
    return ops


def check_entry(op: Op) -> str | None:
    """Return what is wrong with an entry, in a few words; None if nothing is."""
    if not op.name.isidentifier() or op.name != op.name.lower():
        return "its name must be an identifier in lower case"
    if not isinstance(op.kind, Kind):
        return "its kind must be a Kind"
    if not op.spellings:
        return "has no spelling"
    if not op.ranks or not set(op.ranks) <= {1, 2, 3, 4, 5}:
        return "its ranks must lie between 1 and 5"
    unknown = sorted(op.props - PROPS.keys())
    if unknown:
        return f"no property is called {unknown[0]!r}; there are {', '.join(PROPS)}"
    if op.in_dtype == "float" and not draws_within(op.domain):
        return "no input distribution lies within its domain"
    rng = random.Random(0)
    num_legal = 0
    for number in range(_NUM_SHAPES):
        shape = tuple(rng.choice(_SIZES) for _ in range(op.ranks[number % len(op.ranks)]))
        try:
            problem, is_legal = _problem_on(op, shape, rng)
        except _MISTAKES as error:
            return f"on shape {shape}: {_told(error)}"
        if problem is not None:
            return f"on shape {shape}: {problem}"
        num_legal += is_legal
    return None if num_legal else f"attrs accepts none of {_NUM_SHAPES} random shapes"


def _problem_on(op: Op, sizes: tuple[int, ...], rng: random.Random) -> tuple[str | None, bool]:
    """Try an entry on one shape; return what is wrong, and whether the shape suits it."""
    draw = _Chooser(rng, {f"d{index}": size for index, size in enumerate(sizes)})
    named: Shape = tuple(Dim.named(name, size) for name, size in draw.sizes.items())
    attrs = op.attrs(draw, (named,))
    operands = None if attrs is None else op.operands(draw, (named,), attrs)
    if attrs is None or operands is None:
        return None, False
    if not isinstance(attrs, dict) or not op.defaults.keys() <= attrs.keys():
        return "attrs must return a dict with every name in defaults, or None", True
    if not all(isinstance(operand, Operand) for operand in operands):
        return "operands must return a tuple of Operands, or None", True
    plain: Attrs = {key: int(v) if isinstance(v, Dim) else v for key, v in attrs.items()}
    if op.attrs(_Again(plain), (sizes,)) != plain:
        return f"attrs does not give back its choices {plain} when they are replayed", True
    ins = (sizes, *[tuple(int(size) for size in operand.shape) for operand in operands])
    names = (named, *[operand.shape for operand in operands])
    return _problem_of_shapes(op, attrs, plain, ins, names, draw.sizes), True


def _problem_of_shapes(
    op: Op, attrs: Attrs, plain: Attrs, ins: Shapes, named: Shapes, sizes: dict[str, int]
) -> str | None:
    out = op.out(ins, plain)
    if not isinstance(out, tuple) or not all(isinstance(size, int) for size in out):
        return f"out must return a tuple of ints, not {out!r}"
    if tuple(evaluate(expression(size), sizes) for size in op.out(named, attrs)) != out:
        return "out must be arithmetic on sizes: a formula of them gives another shape"
    counts = {
        "flops": op.flops(ins, plain, out),
        "params": op.params(ins, plain),
        "terms": op.terms(ins, plain),
    }
    for name, count in counts.items():
        if not isinstance(count, int) or count < (name == "terms"):
            return f"{name} must return a count, not {count!r}"
    ranges = (op.domain, *[Interval(-1.0, 1.0)] * (len(ins) - 1))
    interval = op.range if isinstance(op.range, Interval) else op.range(ranges, plain)
    if not isinstance(interval, Interval) or interval.low > interval.high:
        return f"range must be an Interval, or return one, not {interval!r}"
    fields = {"self": "", "x": "", "dtype": "", "C": "", "D": "", "...": ""}
    known = {**fields, **dict.fromkeys("yzw"[: len(ins) - 1], ""), **plain}
    return _unknown_placeholder(op, {**known, **op.refs(ins, plain)})


def _unknown_placeholder(op: Op, known: dict[str, Any]) -> str | None:
    for spelling in op.spellings:
        for text in (spelling.call, spelling.init or ""):
            for part in text.split("{")[1:]:
                name = part.partition("}")[0]
                if name not in known:
                    return f"spelling {text!r} has {{{name}}}, which is no input or attribute"
    return None


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


class _Chooser:
    """Chooses freely and names new sizes, as growth does."""

    def __init__(self, rng: random.Random, sizes: dict[str, int]) -> None:
        self.rng = rng
        self.sizes = sizes

    def pick(self, **choices: Sequence[Any]) -> Attrs | None:
        if not all(choices.values()):
            return None
        return {name: self.rng.choice(candidates) for name, candidates in choices.items()}

    def size(self, name: str, choices: Sequence[int], multiple_of: int = 1) -> Attrs | None:
        legal = [value for value in choices if value % multiple_of == 0]
        if not legal:
            return None
        unique = name if name not in self.sizes else f"{name}_{len(self.sizes)}"
        self.sizes[unique] = self.rng.choice(legal)
        return {name: Dim.named(unique, self.sizes[unique])}


class _Again:
    """Answers with recorded choices."""

    def __init__(self, attrs: Attrs) -> None:
        self.attrs = attrs

    def pick(self, **choices: Sequence[Any]) -> Attrs | None:
        fits = all(self.attrs[name] in candidates for name, candidates in choices.items())
        return {name: self.attrs[name] for name in choices} if fits else None

    def size(self, name: str, choices: Sequence[int], multiple_of: int = 1) -> Attrs | None:
        value = self.attrs[name]
        return {name: value} if value % multiple_of == 0 else None

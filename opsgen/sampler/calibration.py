"""Speeds of a device: the tables that come with opsgen and those that `opsgen calibrate` writes."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import msgspec

from opsgen.errors import UsageError
from opsgen.records import Record, digest

Positive = Annotated[float, msgspec.Meta(gt=0)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]

_HALF = ("bfloat16", "float16")
_AT = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")


class Calibration(Record, frozen=True, kw_only=True):
    """Speeds of one device."""

    name: str
    """Name of the table."""
    source: str
    """What the figures were measured on, and when."""
    launch_ms: Positive
    """Fixed cost of one op, milliseconds."""
    bandwidth_gb_s: dict[str, Positive]
    """Achieved bandwidth by kind of op, with `default` for the others."""
    rate_gflop_s: dict[str, dict[str, Positive]]
    """Achieved arithmetic rate by dtype and kind, with `default` for the others."""
    half_length: dict[str, NonNegative] = msgspec.field(default_factory=dict)
    """By kind, how long a fold must be for half of the full speed; 0 where it is left out. With
    `half_number` it is Hockney's n_1/2: a fold of length n runs at n / (n + n_1/2) of the speed."""
    half_number: dict[str, NonNegative] = msgspec.field(default_factory=dict)
    """By kind, how many folds side by side reach half of the full speed; 0 where it is left out."""
    ops: dict[str, Positive] = msgspec.field(default_factory=dict)
    """Factor on an op's time by its name, 1 where it is left out. `<name>:outer` is that of the
    op along dims other than the last, `<name>:grouped` in groups, `<name>:global` over all
    positions; all the same as `<name>` where they are left out."""
    half: dict[str, Positive] = msgspec.field(default_factory=dict)
    """Further factor on an op's time at half precision by its name, 1 where it is left out."""
    dtypes: dict[str, dict[str, Positive]] = msgspec.field(default_factory=dict)
    """Factor on the time of memory passes by dtype and kind, 1 where it is left out."""
    strided: dict[str, Positive] = msgspec.field(default_factory=dict)
    """Factor on the time of an op that reads an input which is not contiguous, by kind, 1 where
    it is left out."""
    gradients: dict[str, Positive] = msgspec.field(default_factory=dict)
    """Factor on the time of an op's backward by kind, 1 where it is left out."""
    scratch: dict[str, float] = msgspec.field(default_factory=dict)
    """Memory that an op takes while it runs beside its inputs and output, as a share of their
    bytes, by its name; negative for ops that return a view. 0 where it is left out."""

    def bandwidth(self, kind: str) -> float:
        """Return bytes a millisecond."""
        return self.bandwidth_gb_s.get(kind, self.bandwidth_gb_s["default"]) * 1e6

    def rate(self, kind: str, dtype: str) -> float:
        """Return operations a millisecond."""
        rates = self.rate_gflop_s.get(dtype, self.rate_gflop_s["float32"])
        return rates.get(kind, rates["default"]) * 1e6

    def op_factor(self, name: str, variant: str, dtype: str) -> float:
        """Return the factor of an op in a variant; the empty one is the op itself."""
        factor = self.ops.get(name, 1.0)
        if variant:
            factor = self.ops.get(f"{name}:{variant}", factor)
        return factor * self.half.get(name, 1.0) if dtype in _HALF else factor

    def work_ms(self, kind: str, dtype: str, moved: float, flops: float) -> float:
        """Return the time of an op of a kind before its own factor, its launch left out.

        Args:
            kind: Its kind.
            dtype: Working dtype.
            moved: Bytes that pass through memory.
            flops: Floating-point operations.
        """
        memory_ms = moved / self.bandwidth(kind)
        factors = self.dtypes.get(dtype)
        if factors:
            memory_ms *= factors.get(kind, 1.0)
        return max(memory_ms, flops / self.rate(kind, dtype))


def load_calibration(name: str) -> Calibration:
    """Read a table that ships with opsgen, or a `.toml` file.

    Args:
        name: Name of a table, or the path of a file that ends in `.toml`.

    Raises:
        UsageError: There is no such table, or the file is none; the message names the key.
    """
    return _read_file(Path(name)) if name.endswith(".toml") else _load_shipped(name)


def calibration_digest(name: str) -> str:
    """Return a digest of a table's figures."""
    return digest(load_calibration(name))


@cache
def _load_shipped(name: str) -> Calibration:
    folder = files("opsgen") / "tables" / "calibrations"
    known = sorted(
        p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")
    )
    if name not in known:
        raise UsageError(
            f"sample.calibration: no table {name!r}; there are {', '.join(known)}, "
            "or give the path of a .toml file"
        )
    text = (folder / f"{name}.toml").read_text(encoding="utf-8")
    return _convert({"name": name, **tomllib.loads(text)}, f"{name}.toml")


def _read_file(path: Path) -> Calibration:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"sample.calibration: {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"sample.calibration: {path}: is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"sample.calibration: {path}: is not TOML: {error}") from error
    return _convert({**tree, "name": path.stem}, f"sample.calibration: {path}")


def _convert(tree: dict[str, Any], where: str) -> Calibration:
    try:
        table = msgspec.convert(tree, Calibration)
    except msgspec.ValidationError as error:
        match = _AT.search(str(error))
        message = _AT.sub("", str(error)).replace("`", "").replace("Object", "table")
        key = _full_key(tree, match["path"]) if match else ""
        raise UsageError(f"{where}: {key}{message[0].lower()}{message[1:]}") from error
    if "default" not in table.bandwidth_gb_s:
        raise UsageError(f"{where}: bandwidth_gb_s: lacks default")
    if "float32" not in table.rate_gflop_s:
        raise UsageError(f"{where}: rate_gflop_s: lacks float32")
    for dtype, rates in table.rate_gflop_s.items():
        if "default" not in rates:
            raise UsageError(f"{where}: rate_gflop_s.{dtype}: lacks default")
    return table


def _full_key(tree: dict[str, Any], path: str) -> str:
    """Return a path with the key that msgspec writes as `[...]`: the first without a figure."""
    table, is_inside, _ = path.partition("[...]")
    for key, value in tree.get(table, {}).items() if is_inside else ():
        if isinstance(value, dict):
            found = _full_key({f"{table}.{key}": value}, f"{table}.{key}[...]")
            if "[" not in found:
                return found
        elif isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            return f"{table}.{key}: "
    return f"{path}: "


def render_calibration(calibration: Calibration, comment: str) -> str:
    """Return a table as TOML, under a comment of one or more lines."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [
        f"source = {_quoted(calibration.source)}",
        f"launch_ms = {_figure(calibration.launch_ms)}",
    ]
    tables: dict[str, dict[str, float]] = {"bandwidth_gb_s": calibration.bandwidth_gb_s}
    tables |= {f"rate_gflop_s.{key}": each for key, each in calibration.rate_gflop_s.items()}
    tables |= {f"dtypes.{key}": each for key, each in calibration.dtypes.items()}
    tables["half_length"] = calibration.half_length
    tables["half_number"] = calibration.half_number
    tables["strided"] = calibration.strided
    tables["gradients"] = calibration.gradients
    tables["ops"] = calibration.ops
    tables["half"] = calibration.half
    tables["scratch"] = calibration.scratch
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]"]
            lines += [f"{_key(key)} = {_figure(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _figure(value: float) -> str:
    return repr(float(f"{value:.4g}"))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

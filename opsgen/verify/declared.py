"""Whether foreign code runs the ops that its row declares, however either side spells them.

Rows name ops as `nn.Conv2d`, `F.relu`, `relu`, `+` or `Parameter`, in the order
in which somebody drew them, so that order decides nothing here.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable

from torch import nn

from opsgen.verify.naming import alias_of, is_function
from opsgen.verify.recording import Call, Recording

# Ops that say the same of a row: what is a product for one author is an einsum for another.
_FAMILIES = {
    "matmul": ("mm", "bmm", "mv", "dot", "inner", "vdot", "vecdot", "einsum", "tensordot"),
    "view": ("reshape", "flatten", "unflatten", "viewas", "reshapeas", "ravel"),
    "transpose": ("permute", "movedim", "t", "adjoint", "matrixtranspose", "mt", "h"),
    "unsqueeze": ("squeeze",),
    "expand": ("expandas", "broadcastto"),
    "chunk": ("split", "tensorsplit", "unbind"),
    "bitwiseand": ("and", "logicaland"),
    "bitwiseor": ("or", "logicalor"),
    "bitwisenot": ("invert", "logicalnot"),
    "max": ("amax", "maximum"),
    "min": ("amin", "minimum"),
}
_FAMILY = {member: name for name, members in _FAMILIES.items() for member in members}
# No calls of their own, or none that a run at these settings needs to make.
_UNSEEN = frozenset(
    (
        *("sequential", "modulelist", "moduledict", "parameterlist", "parameterdict", "module"),
        *("identity", "dropout", "dropout1d", "dropout2d", "dropout3d", "alphadropout"),
        *("getitem", "setitem", "size", "shape", "clone", "contiguous", "to", "float", "detach"),
    )
)
_PARAMETERS = frozenset(("parameter", "buffer"))
# Work that a row cannot leave unnamed: neither pointwise arithmetic nor plain reductions, and
# no moving or casting of elements.
_HEAVY = re.compile(
    r"matmul|linear|bilinear|addmm|addmv|addbmm|baddbmm|addr|kron|outer|cdist|pdist"
    r"|conv(transpose)?[123]d|convtbc|.*attention.*|transformer.*"
    r"|(rnn|lstm|gru)(cell|tanh|relu)?|.*norm|localresponsenorm|normalize"
    r"|softmax|logsoftmax|softmin|gumbelsoftmax|.*pool[123]d"
    r"|cumsum|cumprod|cummax|cummin|logcumsumexp|cumulativetrapezoid"
    r"|sort|argsort|msort|topk|kthvalue|unique.*|fold|unfold|gridsample|interpolate"
    r"|crossentropy|binarycrossentropy.*|nllloss|kldiv|.*loss"
    r"|i?r?fft[2n]?|h?fft|stft|istft|svd|qr|eig.*|cholesky.*|inv|solve.*|lu.*|det"
)
_LIGHT = frozenset(("norm", "renorm"))  # reductions


def describe_declared(ops: tuple[str, ...], recording: Recording) -> str | None:
    """Return how a run differs from the declared ops, or None.

    It does where a declared op is not called as often as it is declared, and where heavy work
    runs that no declared op names: contractions, convolutions, attention, recurrences,
    normalisations, softmax, pooling, scans, sorts, resampling, losses, transforms. Rows without
    declared ops and rows that name a module which is none of torch are not judged.

    Args:
        ops: What the row declares.
        recording: A run with the task's own modules looked into.
    """
    wanted = [(name, _family(alias_of(name))) for name in ops]
    if not any(_is_known(name, alias) for name, alias in wanted):
        return None
    ran = Counter(alias for call in recording.calls for alias in _aliases(call))
    counts: Counter[str] = Counter()
    for name, alias in wanted:
        if alias in _PARAMETERS:
            if not recording.has_own_state:
                return f"{name} is declared and the model has no parameter of its own"
            continue
        if alias in _UNSEEN or not _is_known(name, alias):
            continue
        counts[alias] += 1
        if ran[alias] < counts[alias]:
            times = "" if counts[alias] == 1 else f" {counts[alias]} times"
            return f"{name} is declared{times}, and {_told(ran[alias])}"
    return _describe_undeclared({alias for _, alias in wanted}, recording.calls)


def _told(count: int) -> str:
    return "never called" if not count else f"called {count} times"


def _describe_undeclared(declared: set[str], calls: Iterable[Call]) -> str | None:
    for call in calls:
        aliases = _aliases(call)
        is_heavy = any(_HEAVY.fullmatch(alias) and alias not in _LIGHT for alias in aliases)
        if call.computes and is_heavy and declared.isdisjoint(aliases):
            return f"{call.names[0]} runs and is not declared"
    return None


def _aliases(call: Call) -> set[str]:
    return {_family(alias_of(name)) for name in call.names}


def _family(alias: str) -> str:
    return _FAMILY.get(alias, alias)


def _is_known(name: str, alias: str) -> bool:
    """Whether a name means an op of torch; whole modules of other packages do not."""
    is_torch = name.strip().startswith(("torch.", "nn.", "F."))
    return is_torch or is_function(alias) or alias in _module_aliases() or alias in _FAMILIES


@functools.cache
def _module_aliases() -> frozenset[str]:
    return frozenset(alias_of(name) for name in dir(nn) if name[:1].isupper())

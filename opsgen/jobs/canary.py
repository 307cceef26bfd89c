"""The job that asks whether a device computes right and as fast as before."""

from __future__ import annotations

from opsgen.child.context import JobContext
from opsgen.child.nvml import read_state
from opsgen.device.canary import ask_device, make_verifier
from opsgen.records import CanaryEvidence, CanaryRequest


def run(request: CanaryRequest, context: JobContext) -> CanaryEvidence:
    """Return how the device does the canary's work, beside how it did when first asked.

    A device that was never asked before on this host is given its reference. A check that is
    due, such as after a holder's death, is made first.

    Raises:
        MeasureError: The device does not pass that check, or was never asked and is wrong.
        RuntimeError: It does not do the work at all.
    """
    lease = context.lease
    is_cuda = request.device != "cpu"
    if is_cuda:
        read_state(lease.device_id)  # The first question takes long: not while the device is held.
    verify = lease.verifier = make_verifier(request.device, lease.logbook)
    with lease.hold():
        reference_ms = lease.logbook.reference_ms
        if reference_ms is None:
            verify(False)
        is_right, median_ms = ask_device(request.device, reference_ms)
        state = read_state(lease.device_id) if is_cuda else None
    return CanaryEvidence(
        is_right=is_right,
        median_ms=median_ms,
        reference_ms=reference_ms,
        state=state,
    )

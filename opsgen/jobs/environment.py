"""The job that says what a child runs on."""

from __future__ import annotations

from opsgen.child.context import JobContext
from opsgen.device import read_environment
from opsgen.records import Environment, EnvironmentRequest


def run(request: EnvironmentRequest, context: JobContext) -> Environment:
    """Return the machine's record; what it lacks stands in `problems`."""
    return read_environment(request.device)

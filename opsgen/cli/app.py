"""The commands put together, and how mistakes and interrupts end."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import typer

import opsgen
from opsgen.cli import auditing, calibrating, fingerprinting, looking, recipes, working
from opsgen.errors import MeasureError, UsageError

_MISTAKE = 2
_MACHINE = 3
_INTERRUPTED = 130

app = typer.Typer(
    name="opsgen",
    help="Generate, measure, certify and release operator-fusion tasks for GPU-kernel training.",
    epilog="Exit codes: 0 done; 1 something was deferred by a fault of the machine; 2 a mistake, "
    "told in one line; 3 the machine or the fleet failed, 130 interrupted: the same command resumes.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """End a user's mistake and an interrupt in one line each."""

    @functools.wraps(command)
    def run(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
        except UsageError as error:
            print(f"opsgen: {error}", file=sys.stderr)
            raise typer.Exit(_MISTAKE) from None
        except BrokenPipeError:
            # Whoever read the output has seen enough.
            raise typer.Exit from None
        except (MeasureError, OSError) as error:
            print(f"opsgen: {str(error).partition(chr(10))[0]}", file=sys.stderr)
            raise typer.Exit(_MACHINE) from None
        except KeyboardInterrupt:
            print("opsgen: interrupted; the same command resumes", file=sys.stderr)
            raise typer.Exit(_INTERRUPTED) from None

    return run


_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Recipes": (
        recipes.run,
        recipes.sample,
        recipes.probe,
        recipes.measure,
        recipes.admit,
        recipes.release,
    ),
    "Tasks and machines": (
        auditing.audit,
        fingerprinting.fingerprint,
        looking.show,
        looking.ops,
        looking.doctor,
        calibrating.calibrate,
        working.worker,
    ),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_guarded(_command))


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        print(f"opsgen {opsgen.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(_MISTAKE)


def main() -> None:
    """Run the command line."""
    app()

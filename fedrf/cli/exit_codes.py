"""Exit codes: 0 success, 1 the run failed, 2 the call or its input is wrong, 130 interrupted."""

from __future__ import annotations

import sys
import warnings

import typer

from fedrf.errors import RunFailedError

RUN_FAILED, WRONG_CALL, INTERRUPTED = 1, 2, 130


def run_command(app: typer.Typer, name: str = "fedrf") -> None:
    """Run a command line and exit; an error of the user gives one line and exit code 2, never a traceback."""

    def print_line(message: str) -> None:
        if message:
            print(f"{name}: {' '.join(message.split())}", file=sys.stderr)

    warnings.showwarning = lambda message, *_, **__: print_line(f"warning: {message}")
    command = typer.main.get_command(app)
    try:
        sys.exit(command.main(prog_name=name, standalone_mode=False))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except Exception as error:
        usage_error = getattr(error, "format_message", None)  # of click
        if usage_error is None and not isinstance(error, ValueError | OSError | MemoryError | RunFailedError):
            raise
        print_line(usage_error() if usage_error else str(error))
        sys.exit(WRONG_CALL if usage_error or isinstance(error, ValueError) else RUN_FAILED)

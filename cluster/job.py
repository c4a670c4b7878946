"""`cluster/submit`: run a command as a job on a Ray cluster, as if it ran on this machine."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from ray.exceptions import AuthenticationError

from cluster.package import pack
from cluster.selection import describe_secrets
from cluster.server import JobServer, notify
from cluster.submission import FAILED, INTERRUPTED, USAGE_ERROR, Submission
from cluster.task import Task, read_command

STOP_SECONDS = 60  # between the signal to stop and the kill, for a checkpoint; Ray's default is 3
HELP = """
Run a command on a Ray cluster as if it ran here: with its output, its exit code, and its run directory.

The working directory is sent along, except what .gitignore and .rayignore list, and except data, runs, sweeps, wandb,
lightning_logs, run directories, virtual environments, caches, and files that may hold secrets (`.env`, `*.key`, `.ssh`
and others, which a message names). A line `!NAME` in .rayignore sends a file or folder all the same. The cluster's
`python` must have fedrf and its dependencies; copies of `fedrf/` and `tune/` in the working directory take precedence.

`fedrf run` and `python -m tune` write to a folder below `--runs` on the cluster. When the job has ended, with any exit
code but 2, this folder is copied to the command's `--out` here, by default runs/ID or sweeps/ID. It also stays on the
cluster. A job that the cluster lost is resumed from its last checkpoint. Other commands run unchanged. Run directories
are fetched from the head, where the coordinator keeps what clients on other nodes leave behind.

Ctrl-C stops the job, which saves a checkpoint, and fetches the results; a second Ctrl-C exits without waiting for this.
If RAY_AUTH_MODE=token, the cluster gets the token of RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN. The job gets all WANDB_
variables of this shell except WANDB_DIR; all users of the cluster can read them.

Standard output is the output of the job. Ray keeps one log for each job, so it includes the job's standard error.

Exit code: the job's; 130 if it was stopped, 1 if it was lost too often or the cluster does not answer, 2 if the call is
wrong.

Examples
--------
`cluster/submit http://127.0.0.1:8265 -- fedrf run office31 data.target=webcam --out runs/webcam`

`cluster/submit --env FEDRF_DATA=/mnt/data --runs /mnt/runs head:8265 -- python -m tune digits`

`cluster/submit head:8265 -- fedrf run --resume '~/fedrf-runs/fedrf-20261116-101500-1f2e'`

`cluster/submit --id fedrf-20261116-101500-1f2e head:8265 -- fedrf run office31 data.target=webcam`

`cluster/submit head:8265 -- fedrf doctor`
"""
Address = Annotated[str, typer.Argument(help="The job server, e.g. http://127.0.0.1:8265 behind an SSH tunnel.")]
Command = Annotated[list[str], typer.Argument(help="The command to run, after `--`.", show_default=False)]
Runs = Annotated[
    str,
    typer.Option(metavar="DIR", help="Folder on the cluster for run directories; best on a disk that all nodes share."),
]
Env = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME[=VALUE]", help="Variable for the job; without a value, that of this shell."),
]
RequirementsFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Packages that pip installs for the job.")]
Retries = Annotated[int, typer.Option(min=0, help="How often a job that the cluster lost is resumed.")]
Name = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Continue with an earlier run: follow it, resume it, or fetch it."),
]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command(help=HELP)
def submit(
    address: Address,
    command: Command,
    runs: Runs = "~/fedrf-runs",
    env: Env = None,
    requirements: RequirementsFile = None,
    retries: Retries = 3,
    name: Name = None,
) -> None:
    """Check the call, then submit the command and exit with its code."""
    name = name or f"fedrf-{datetime.now():%Y%m%d-%H%M%S}-{token_hex(2)}"
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"--id {name}: allowed are letters, digits, '.', '_' and '-'")
    if requirements is not None and not requirements.is_file():
        raise ValueError(f"--requirements {requirements}: no such file")
    settings: dict[str, Any] = {"env_vars": _variables(env or [])}
    if requirements is not None:
        settings["pip"] = str(requirements)
    task = read_command(command, runs.rstrip("/"), name)
    if task.destination is not None:
        _check_destination(task.destination)
    raise typer.Exit(_run(address, name, task, settings, retries))


def _run(address: str, name: str, task: Task, settings: dict[str, Any], retries: int) -> int:
    """Send the working directory and the task to the cluster; return the exit code."""
    with TemporaryDirectory() as folder:
        package = Path(folder, "working-directory.zip")
        selection = pack(Path.cwd(), package)
        if selection.secrets:
            notify(describe_secrets(selection.secrets, Path.cwd()))
        server = JobServer(address)
        notify(f"sending {len(selection.files)} files of {Path.cwd()} to {server.get_address()}")
        return Submission(server, name, task, {"working_dir": str(package), **settings}).run(retries)


def _variables(entries: list[str]) -> dict[str, str]:
    """Return the environment of the job."""
    variables = {key: value for key, value in os.environ.items() if key.startswith("WANDB_") and key != "WANDB_DIR"}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals and key not in os.environ:
            raise ValueError(f"--env {key}: this shell has no such variable; give it as {key}=VALUE")
        variables[key] = value if equals else os.environ[key]
    return {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS), **variables}


def _check_destination(path: Path) -> None:
    """Check before the job is submitted that its results can be written."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--out: {path} is not an empty folder; choose another")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"--out: the folder {path.parent} is not writable")


def main() -> None:
    """Run the command line; report errors in one line, without a traceback."""
    logging.disable(logging.WARNING)  # Ray logs every step
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = typer.main.get_command(app)
    try:
        sys.exit(command.main(prog_name="cluster/submit", standalone_mode=False))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except AuthenticationError as error:
        notify(
            f"the cluster refused the call: {error.message.partition(chr(10))[0]}. Set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN_PATH to a file with the cluster's token"
        )
        sys.exit(FAILED)
    except Exception as error:
        format_usage = getattr(error, "format_message", None)  # of typer's usage errors
        if format_usage is None and not isinstance(error, ValueError | OSError | RuntimeError):
            raise
        notify(format_usage() if format_usage else str(error))
        sys.exit(USAGE_ERROR if format_usage or isinstance(error, ValueError) else FAILED)


if __name__ == "__main__":
    main()

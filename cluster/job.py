"""`cluster/submit`: a command as a job on a Ray cluster, as if it ran here."""

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
from cluster.server import JobServer, say
from cluster.submission import FAILED, INTERRUPTED, WRONG_CALL, Submission
from cluster.task import read_command

STOP_SECONDS = 60  # for a checkpoint, between the stop and the kill; Ray gives 3

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command()
def submit(
    address: Annotated[str, typer.Argument(help="The job server, say http://127.0.0.1:8265 behind an SSH tunnel.")],
    command: Annotated[list[str], typer.Argument(help="What to run, after `--`.", show_default=False)],
    runs: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Folder on the cluster for run directories; best on a disk that all nodes share."
        ),
    ] = "~/fedrf-runs",
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=VALUE]", help="Variable for the job; without a value, that of this shell."),
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Packages that pip installs for the job.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a job that the cluster lost is resumed.")] = 3,
    name: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Go on with an earlier run: follow it, resume it, or fetch it."),
    ] = None,
) -> None:
    """Run a command on a Ray cluster as if it ran here: its output, its exit code, and its run directory.

    The working directory is sent along, without what .gitignore and .rayignore name, and without data, runs, sweeps,
    wandb, lightning_logs, run directories, virtual environments and caches. The cluster's `python` must have fedrf
    and what it needs; copies of `fedrf/` and `tune/` in the working directory go first.

    `fedrf run` and `python -m tune` write to a folder below `--runs` on the cluster. Whatever is there when the job
    has ended, well or not (but for exit code 2), is copied to the command's `--out` here, by default runs/ID or
    sweeps/ID, and stays on the cluster too. A job that the cluster lost is resumed from its last checkpoint. Other
    commands run as they are. Run directories are fetched from the head: on a cluster without a shared disk, clients
    on other nodes keep their checkpoints there, and such a run cannot be resumed.

    Ctrl-C stops the job, which saves a checkpoint, and fetches it; a second one leaves the job to itself. A cluster
    that asks for a token gets that of RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN, if RAY_AUTH_MODE=token. The job gets all
    WANDB_ variables of this shell but WANDB_DIR, and whoever may use the cluster can read them.

    Standard output is that of the job, of which Ray keeps one log: what it writes to standard error comes with it.

    Exit code: the job's; 130 if it was stopped, 1 if it was lost too often or the cluster does not answer, 2 if the
    call is wrong.

    Examples
    --------
    `cluster/submit http://127.0.0.1:8265 -- fedrf run office31 data.target=webcam --out runs/webcam`

    `cluster/submit --env FEDRF_DATA=/mnt/data --runs /mnt/runs head:8265 -- python -m tune digits`

    `cluster/submit head:8265 -- fedrf run --resume '~/fedrf-runs/fedrf-20261116-101500-1f2e'`

    `cluster/submit --id fedrf-20261116-101500-1f2e head:8265 -- fedrf run office31 data.target=webcam`

    `cluster/submit head:8265 -- fedrf doctor`
    """
    name = name or f"fedrf-{datetime.now():%Y%m%d-%H%M%S}-{token_hex(2)}"
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"--id {name}: letters, digits, '.', '_' and '-' are allowed")
    if requirements is not None and not requirements.is_file():
        raise ValueError(f"--requirements {requirements}: no such file")
    variables = _variables(env or [])
    task = read_command(command, runs.rstrip("/"), name)
    if task.destination is not None:
        _check_destination(task.destination)
    with TemporaryDirectory() as folder:
        package = Path(folder, "working-directory.zip")
        number = pack(Path.cwd(), package)
        server = JobServer(address)
        say(f"{number} files of {Path.cwd()} go to {server.get_address()}")
        settings: dict[str, Any] = {"working_dir": str(package), "env_vars": variables}
        if requirements is not None:
            settings["pip"] = str(requirements)
        code = Submission(server, name, task, settings).run(retries)
    raise typer.Exit(code)


def _variables(wanted: list[str]) -> dict[str, str]:
    """Return the environment of the job."""
    given = {key: value for key, value in os.environ.items() if key.startswith("WANDB_") and key != "WANDB_DIR"}
    for entry in wanted:
        key, equals, value = entry.partition("=")
        if not equals and key not in os.environ:
            raise ValueError(f"--env {key}: this shell has no such variable; give it as {key}=VALUE")
        given[key] = value if equals else os.environ[key]
    return {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS), **given}


def _check_destination(path: Path) -> None:
    """Find out before the work whether its result can be written."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--out: {path} already holds something; name another")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"--out: the folder {path.parent} cannot be written to")


def main() -> None:
    """Run the command line; one line says what is wrong, never a traceback."""
    logging.disable(logging.WARNING)  # Ray reports every step
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = typer.main.get_command(app)
    try:
        sys.exit(command.main(prog_name="cluster/submit", standalone_mode=False))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except AuthenticationError as error:
        say(
            f"the cluster refused the call: {error.message.partition(chr(10))[0]}. Set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN_PATH to a file with the cluster's token"
        )
        sys.exit(FAILED)
    except Exception as error:
        shown = getattr(error, "format_message", None)
        if shown is None and not isinstance(error, ValueError | OSError | RuntimeError):
            raise
        say(shown() if shown else str(error))
        sys.exit(WRONG_CALL if shown or isinstance(error, ValueError) else FAILED)


if __name__ == "__main__":
    main()

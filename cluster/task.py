"""The command that a job runs, where its results go on the cluster and here, and how a lost job is resumed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """What the cluster runs.

    Attributes
    ----------
    entrypoint
        A line of sh. It checks itself whether there is something to resume, so a lost job is submitted with the same
        line again.
    folder
        The results on the cluster, quoted for sh; None if nothing is to be fetched.
    destination
        The folder on this machine that they are copied to.
    """

    entrypoint: str
    folder: str | None = None
    destination: Path | None = None


def read_command(command: list[str], runs: str, name: str) -> Task:
    """Return the task for a command; runs and sweeps can be resumed and fetched, other commands run unchanged.

    Parameters
    ----------
    command
        The command as given, for example ``["fedrf", "run", "--out", "here"]``.
    runs
        The folder on the cluster below which results are written.
    name
        The name of the run or sweep.
    """
    words = ["python", "-m", *command] if command[0] == "fedrf" else command
    module = words[2:4] if Path(words[0]).name.startswith("python") and words[1:2] == ["-m"] else []
    if module[:1] != ["tune"] and module != ["fedrf", "run"]:
        return Task(f"exec {shlex.join(words)}")
    out, words = _pop_option(words, "--out")
    if module[0] == "tune":
        resume = [*(word for word in words if word != "--resume"), "--resume", "--out"]
        return _resumable(f"{runs}/{name}", "sweep.yaml", resume, [*words, "--out"], Path(out or f"sweeps/{name}"))
    destination = Path(out or f"runs/{name}")
    remote, words = _pop_option(words, "--resume")
    if remote:
        return _resumable(remote, "config.yaml", [*words, "--resume"], [*words, "--resume"], destination)
    address, _ = _pop_option(words, "--address")
    flags = [word for word in words if word in ("--json", "--local")]
    resume = [*words[:4], *flags, *(["--address", address] if address else []), "--resume"]
    return _resumable(f"{runs}/{name}", "config.yaml", resume, [*words, "--out"], destination)


def _resumable(folder: str, marker: str, resume: list[str], start: list[str], destination: Path) -> Task:
    """Return a task that resumes if `folder` contains the file `marker`, and starts anew otherwise."""
    if not folder.startswith(("/", "~/")):
        raise ValueError(f"{folder}: a folder on the cluster must start with / or ~/")
    # Only the shell on the cluster can expand ~.
    home, rest = ("~/", folder[2:]) if folder.startswith("~/") else ("", folder)
    quoted = home + shlex.quote(rest)
    choice = (
        f'if [ -s "$run/{marker}" ]; then exec {shlex.join(resume)} "$run"; else exec {shlex.join(start)} "$run"; fi'
    )
    return Task(f"run={quoted}; {choice}", quoted, destination)


def _pop_option(words: list[str], option: str) -> tuple[str | None, list[str]]:
    """Return the value of an option, and the command without it."""
    for index, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2], words[:index] + words[index + 1 :]
        if word == option:
            if index + 1 == len(words):
                raise ValueError(f"{option} needs a value")
            return words[index + 1], words[:index] + words[index + 2 :]
    return None, words

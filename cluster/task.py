"""The command that a job runs: where its results go on the cluster and here, and how a lost one is resumed."""

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
        A line of sh. It looks itself whether there is something to resume, so a job that was lost is given it again.
    folder
        Where the results are on the cluster, as a word of sh; None if nothing is to be fetched.
    destination
        Where they go here.
    """

    entrypoint: str
    folder: str | None = None
    destination: Path | None = None


def read_command(command: list[str], runs: str, name: str) -> Task:
    """Tell runs and sweeps from other commands.

    Parameters
    ----------
    command
        As given, say ``["fedrf", "run", "--out", "here"]``.
    runs
        The folder on the cluster below which results go.
    name
        The name of the run or sweep.
    """
    words = ["python", "-m", *command] if command[0] == "fedrf" else command
    module = words[2:4] if Path(words[0]).name.startswith("python") and words[1:2] == ["-m"] else []
    if module[:1] != ["tune"] and module != ["fedrf", "run"]:
        return Task(f"exec {shlex.join(words)}")
    out, words = _take(words, "--out")
    if module[0] == "tune":
        resume = [*(word for word in words if word != "--resume"), "--resume", "--out"]
        return _resumable(f"{runs}/{name}", "sweep.yaml", resume, [*words, "--out"], Path(out or f"sweeps/{name}"))
    destination = Path(out or f"runs/{name}")
    remote, words = _take(words, "--resume")
    if remote:
        return _resumable(remote, "config.yaml", [*words, "--resume"], [*words, "--resume"], destination)
    address, _ = _take(words, "--address")
    kept = [word for word in words if word in ("--json", "--local")]
    resume = [*words[:4], *kept, *(["--address", address] if address else []), "--resume"]
    return _resumable(f"{runs}/{name}", "config.yaml", resume, [*words, "--out"], destination)


def _resumable(folder: str, proof: str, resume: list[str], start: list[str], destination: Path) -> Task:
    """Resume where the file `proof` shows that something was begun."""
    if not folder.startswith(("/", "~/")):
        raise ValueError(f"{folder}: name a folder on the cluster in full, from / or from ~/")
    # Only the shell over there knows what ~ is.
    home, rest = ("~/", folder[2:]) if folder.startswith("~/") else ("", folder)
    word = home + shlex.quote(rest)
    choice = (
        f'if [ -s "$run/{proof}" ]; then exec {shlex.join(resume)} "$run"; else exec {shlex.join(start)} "$run"; fi'
    )
    return Task(f"run={word}; {choice}", word, destination)


def _take(words: list[str], option: str) -> tuple[str | None, list[str]]:
    """Take an option and its value out of a command."""
    for index, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2], words[:index] + words[index + 1 :]
        if word == option:
            if index + 1 == len(words):
                raise ValueError(f"{option} needs a value")
            return words[index + 1], words[:index] + words[index + 2 :]
    return None, words

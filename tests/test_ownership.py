"""Ownership of a run directory: one process at a time, and no writer of an earlier owner."""

import json
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from fedrf import ownership
from fedrf.ownership import Fence, Owner, RunTakenOverError


def claim_in(folder, results):
    try:
        owner = Owner.claim(folder)
        results.put(owner.fence.token)
        time.sleep(2)
    except ValueError as error:
        results.put(str(error))


def test_of_many_processes_that_start_together_one_becomes_the_owner(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=claim_in, args=(tmp_path, results)) for _ in range(8)]
    for process in processes:
        process.start()
    answers = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert sum("is in use by process" in answer for answer in answers) == 7


def test_of_many_processes_that_take_over_together_one_becomes_the_owner(tmp_path):
    write_owner(tmp_path, process=2**22 + 1)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=claim_in, args=(tmp_path, results)) for _ in range(4)]
    for process in processes:
        process.start()
    answers = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert sum("is in use" in answer for answer in answers) == 3


def write_owner(folder, **changes):
    """Write an owner file as another process would have."""
    content = {"token": "old", **ownership._identity(), **changes}
    (folder / "owner.json").write_text(json.dumps(content))


def test_the_directory_of_a_process_that_has_ended_is_taken_over_at_once(tmp_path):
    program = "import sys; from pathlib import Path; from fedrf.ownership import Owner; Owner.claim(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)
    old = Fence(tmp_path, json.loads((tmp_path / "owner.json").read_text())["token"])
    old.check()
    owner = Owner.claim(tmp_path)
    owner.fence.check()
    with pytest.raises(RunTakenOverError):
        old.check()


def test_another_process_with_the_same_number_is_not_the_owner(tmp_path):
    write_owner(tmp_path, process=os.getpid(), process_began="1")
    Owner.claim(tmp_path)


def test_the_owner_on_another_machine_is_alive_while_it_renews_its_file(tmp_path):
    write_owner(tmp_path, machine="another", host="another")
    with pytest.raises(ValueError, match=r"is in use by process \d+ on another since .*; wait for that run, or end it"):
        Owner.claim(tmp_path)
    past = time.time() - ownership.LEASE_SECONDS - 1
    os.utime(tmp_path / "owner.json", (past, past))
    assert Owner.claim(tmp_path).fence.token != "old"


def test_a_damaged_owner_file_belongs_to_nobody_after_a_while(tmp_path):
    (tmp_path / "owner.json").write_text("{")
    with pytest.raises(ValueError, match="is in use"):
        Owner.claim(tmp_path)
    os.utime(tmp_path / "owner.json", (0, 0))
    Owner.claim(tmp_path)


def test_a_new_fence_excludes_those_that_hold_the_old_one(tmp_path):
    owner = Owner.claim(tmp_path)
    old = owner.fence
    new = owner.renew_fence()
    new.check()
    with pytest.raises(RunTakenOverError, match="has been taken over by another process"):
        old.check()


def eventually(condition):
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def test_an_owner_that_was_replaced_neither_renews_nor_releases(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "RENEW_SECONDS", 0.01)
    owner = Owner.claim(tmp_path)
    write_owner(tmp_path)
    os.utime(tmp_path / "owner.json", (1, 1))
    time.sleep(0.2)
    assert (tmp_path / "owner.json").stat().st_mtime == 1
    with pytest.raises(RunTakenOverError):
        owner.fence.check()
    owner.release()
    assert (tmp_path / "owner.json").exists()


def test_an_owner_renews_its_file_while_it_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "RENEW_SECONDS", 0.01)
    owner = Owner.claim(tmp_path)
    os.utime(tmp_path / "owner.json", (0, 0))
    assert eventually(lambda: time.time() - (tmp_path / "owner.json").stat().st_mtime < 60)
    owner.release()


def test_a_released_directory_is_free(tmp_path):
    Owner.claim(tmp_path).release()
    assert list(tmp_path.iterdir()) == []
    Owner.claim(tmp_path)

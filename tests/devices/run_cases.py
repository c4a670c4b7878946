"""Run cases on the simulated device, one after the other, and print a line of JSON for each.

python -m tests.devices.run_cases [TEXT …]: those whose name has one of the texts in it; by default all.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import sys
import time
import warnings
from contextlib import nullcontext
from functools import partial
from traceback import format_exc

import fedrf
from fedrf.errors import RunFailedError
from fedrf.experiment import driver
from fedrf.federation import client
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.preparation import Preparation
from tests.conftest import final_weights
from tests.devices import cases
from tests.devices.simulated_device import DEVICE
from tests.devices.watch import filling_memory, install, little_host_memory, watched, without_float64

LONGEST_SECONDS = 300  # of a case; then all threads are shown


def run(keys, out, context=nullcontext):
    """Run a case; return what was seen."""
    emptied = DEVICE.emptied
    with watched() as watch, context():
        result = fedrf.run(None, keys, out=out / "run", local=True)
    return {
        "syncs": {role: list(steps.values()) for role, steps in watch.syncs.items()},
        "on_host": dict(watch.on_host),
        "rows_on": sorted(watch.rows_on),
        "emptied": DEVICE.emptied - emptied,
        "placement": result.summary["placement"],
        "accuracy": result.target_accuracy,
    }


def run_again(case, out):
    """Run a case that fails in a step of the target, and continue it; compare with a run that does not fail."""
    keys, step = case
    with watched() as watch:
        watch.fail_in = step
        reason = ""
        try:
            fedrf.run(None, keys, out=out / "failed", local=True)
        except RunFailedError as error:
            reason = str(error)
        resumed = fedrf.run(resume=out / "failed", local=True)
        undisturbed = fedrf.run(None, keys, out=out / "undisturbed", local=True)
    return {
        "reason": reason,
        "on_host": dict(watch.on_host),
        "finished": resumed.finished,
        "same": final_weights(resumed) == final_weights(undisturbed),
    }


def small_extractor(*arguments):
    """Return an extractor that sees small images, which backbones compute faster."""
    extractor = make_extractor(*arguments)
    extractor.prepare = extractor.prepare and Preparation(32, 32)
    return extractor


def all_cases(folders):
    """Return each case as a function of a folder for its runs."""
    complete = partial(cases.settings, folders=folders)
    plain = cases.RUNS | cases.BACKBONES
    return (
        {name: partial(run, complete(keys)) for name, keys in plain.items()}
        | {
            f"without float64: {name}": partial(run, complete(keys), context=without_float64)
            for name, keys in cases.WITHOUT_FLOAT64.items()
        }
        | {
            f"little host memory: {name}": partial(run, complete(cases.BACKBONES[name]), context=little_host_memory)
            for name in cases.STORED
        }
        | {
            f"filling memory: {name}": partial(run, complete(cases.RUNS[name]), context=filling_memory)
            for name in cases.POOLED
        }
        | {name: partial(run_again, (complete(keys), step)) for name, (keys, step) in cases.RESUMED.items()}
    )


def main(wanted):
    """Run the wanted cases, or all."""
    warnings.simplefilter("ignore")
    install()
    client.make_extractor, driver.POLL_SECONDS = small_extractor, 0.02
    folders = cases.make_folders()
    os.environ["FEDRF_CACHE"] = str(folders["root"] / "cache")
    for name, case in all_cases(folders).items():
        if wanted and not any(text in name for text in wanted):
            continue
        faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
        began, out = time.perf_counter(), folders["root"] / "out"
        try:
            seen = case(out=out)
        except Exception:
            seen = {"error": format_exc()}
        print(json.dumps({"case": name, "seconds": round(time.perf_counter() - began, 2), **seen}), flush=True)
        shutil.rmtree(out, ignore_errors=True)
    faulthandler.cancel_dump_traceback_later()
    shutil.rmtree(folders["root"])


if __name__ == "__main__":
    main(sys.argv[1:])

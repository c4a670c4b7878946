"""Small computations that the tests run as jobs, in other processes."""

import os

# A federated run of a second.
TINY_RUN = {
    "data.name": "digits",
    "data.target": "street",
    "data.sources": ["rendered"],
    "data.samples": 60,
    "train.rounds": 2,
    "resources.accelerator": "cpu",
    "model.num_features": 20,
    "model.dim": 5,
    "method": "fedrf-tca",
}


def double(settings, folder, session):
    (folder / "calls").open("a").write("x")
    return {"accuracy": 2 * settings["x"]}


def fail(settings, folder, session):
    raise ValueError("no such thing\nand a second line")


def die(settings, folder, session):
    os._exit(1)


def die_once(settings, folder, session):
    if not (folder / "died").exists():
        (folder / "died").touch()
        os._exit(1)
    return {"accuracy": 1.0}

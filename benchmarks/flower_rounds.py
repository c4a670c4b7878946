"""Rounds of five clients that return the parameters they were sent, in the simulation of Flower.

Runs in an environment of its own, which has Flower and not fedrf. Its arguments are how many numbers the parameters
have and how many rounds to run; it prints the milliseconds of each round as JSON.
"""

import json
import logging
import sys
import time
from itertools import pairwise

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

CLIENTS = 5
CPUS = 0.4  # of each client, so that all run at the same time on two cores
NUMBERS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
client, server = ClientApp(), ServerApp()
moments: list[float] = []


class Timed(FedAvg):
    """The mean of all clients, with the time at which each round begins."""

    def configure_train(self, *arguments, **keys):
        """Note the time, and do what Flower does."""
        moments.append(1000 * time.perf_counter())
        return super().configure_train(*arguments, **keys)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Return the parameters."""
    metrics = MetricRecord({"num-examples": 1})
    return Message(content=RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(NUMBERS, np.float32)]), num_rounds=ROUNDS)


logging.getLogger("flwr").setLevel(logging.ERROR)
resources = {"client_resources": {"num_cpus": CPUS, "num_gpus": 0.0}}
run_simulation(server_app=server, client_app=client, num_supernodes=CLIENTS, backend_config=resources)
print(json.dumps([end - begin for begin, end in pairwise(moments)]))

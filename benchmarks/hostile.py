"""Accuracy when some of five sources are hostile, for each aggregation rule and for the rules of the closed form.

`python -m benchmarks.hostile`, about half an hour on two cores. The sources are those of the embedded digits, two of
the three domains split in two. Hostile clients run in this process and change what they send:

- `sign`: −W, −C and −G, or −B in the statistics;
- `noise`: normal numbers with one to ten times the usual norm;
- `labels`: they train, or take statistics, with the labels of the next class;
- `shift`: the same, and Σℓ is that of the target, so that w_i = 1 / |Σℓ_i − Σℓ_target| is as large as it can be. They
  get the target's Σℓ of the same round, which no source knows: the worst case;
- `half`: as `shift`, but only the first half of the classes is exchanged, to agree with the others just enough.

With statistics, hostile clients choose the free variance so that it fits the norm of Σℓ, if that is possible. There a
rule combines the weighted B of the sources, and `consistent` is what `fedrf-oneshot` does.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np

import fedrf
import fedrf.federation.closed_form
import fedrf.federation.worker
from fedrf.config.schema import Config, DataConfig
from fedrf.data.datasets.digits import DOMAINS, Digits
from fedrf.data.domains import load_samples
from fedrf.data.samples import Labels, Samples
from fedrf.federation.module import FederatedModule
from fedrf.protocol.aggregation import BUILT_IN, combine
from fedrf.protocol.class_statistics import ClassStatistics
from fedrf.protocol.envelope import Reply
from fedrf.protocol.message import Array, ArrayMessage, Message
from fedrf.protocol.messages import PARTS, MeanEmbedding
from fedrf.protocol.quantized import Quantized
from fedrf.tca.source_statistics import SourceStatistics, between_classes, total_of

TARGETS = ("handwritten", "textured")
ATTACKS = ("sign", "noise", "labels", "shift", "half")
RULES = ("mean", "median", "trimmed", "krum", "geometric-median", "consistent")
ROUNDS = 60


class FiveSources(Digits):
    """The embedded digits with five source clients: the first two source domains are split in two."""

    name = "digits-five-sources"

    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return the target and five sources."""
        sources = [name for name in DOMAINS if name != config.target]
        return (config.target, *(f"{name}-{half}" for name in sources[:2] for half in (1, 2)), sources[2])

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Return a domain, or every other sample of it."""
        name, _, half = domain.partition("-")
        samples = super().load(config, name)
        return samples.take(np.arange(int(half) - 1, len(samples), 2)) if half else samples


class Attack:
    """What hostile clients do instead of the protocol.

    Parameters
    ----------
    name
        One of `ATTACKS`.
    hostile
        The clients that do it.
    """

    def __init__(self, name: str, hostile: Iterable[str]) -> None:
        self.name, self.hostile = name, frozenset(hostile)
        self.copies_target = name in ("shift", "half")
        self._target_embeddings: dict[tuple[str, int], Array] = {}
        self._changed = threading.Condition()

    def labels(self, labels: Labels) -> Labels:
        """Return the labels that a hostile client uses: the next class, for all classes or the first half of them."""
        classes = int(labels.max()) + 1
        exchanged = {"labels": classes, "shift": classes, "half": classes // 2}.get(self.name, 1)
        return np.where(labels < exchanged, (labels + 1) % exchanged, labels)

    def overhear(self, phase: str, number: int, messages: Sequence[Message]) -> None:
        """Keep the Σℓ that the target sends."""
        with self._changed:
            for message in messages:
                if isinstance(message, MeanEmbedding):
                    self._target_embeddings[phase, number] = message.values
            self._changed.notify_all()

    def changed(self, phase: str, number: int, messages: Sequence[Message]) -> list[Message]:
        """Return what a hostile client sends instead of its messages."""
        if self.copies_target and any(isinstance(message, MeanEmbedding) for message in messages):
            key = (phase, number)
            with self._changed:
                self._changed.wait_for(lambda: key in self._target_embeddings)
            embedding = self._target_embeddings[key]
            messages = [
                replace(message, values=embedding) if isinstance(message, MeanEmbedding) else message
                for message in messages
            ]
        sent = next((message.values for message in messages if isinstance(message, MeanEmbedding)), None)
        return [self._changed_message(message, sent) for message in messages]

    def _changed_message(self, message: Message, embedding: Array | None) -> Message:
        random = np.random.default_rng([message.round, len(message.kind), crc32(message.sender.encode())])
        if isinstance(message, ClassStatistics) and embedding is not None:
            columns, classes = Quantized(message.values, message.scales).restored(), len(message.shares)
            if self.name == "sign":
                columns[:, :classes] *= -1
            elif self.name == "noise":
                columns = noise_like(columns, random)
            values, scales = Quantized.of(columns, str(message.values.dtype))
            factor = np.hstack([between_classes(columns[:, :classes], message.shares), columns[:, classes:]])
            free = 1 - np.square(embedding, dtype=np.float64).sum() - np.square(factor).sum()
            return replace(message, values=values, scales=scales, rest=max(0.0, float(free) / len(columns)))
        if isinstance(message, ArrayMessage) and message.kind in PARTS:
            if self.name == "sign":
                return replace(message, values=-message.values)
            if self.name == "noise":
                return replace(message, values=noise_like(message.values, random).astype(np.float32))
        return message


def noise_like(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return normal numbers whose columns have the same norms, times a common factor from 1 to 10."""
    drawn = random.normal(size=values.shape)
    norms, drawn_norms = np.linalg.norm(values, axis=0), np.linalg.norm(drawn, axis=0)
    return np.asarray(random.uniform(1, 10) * drawn * norms / drawn_norms)


@contextmanager
def hostile_clients(attack: Attack) -> Iterator[None]:
    """Let some clients of runs with `local=True` be hostile."""
    exchange = FederatedModule.exchange

    def load(config: Config, client: str) -> Samples:
        samples = load_samples(config, client)
        if client in attack.hostile and samples.labels is not None:
            return replace(samples, labels=attack.labels(samples.labels))
        return samples

    def corrupted(self: FederatedModule, phase: str, number: int, messages: list[Message]) -> Reply:
        if self.schedule.is_target:
            attack.overhear(phase, number, messages)
        elif self.schedule.name in attack.hostile:
            messages = attack.changed(phase, number, messages)
        return exchange(self, phase, number, messages)

    with (
        patch.object(FederatedModule, "exchange", corrupted),
        patch.object(fedrf.federation.worker, "load_samples", load),
    ):
        yield


@contextmanager
def rule_for_statistics(name: str) -> Iterator[None]:
    """Let a rule combine the statistics of all sources; `consistent` is what the coordinator does by itself."""
    if name == "consistent":
        yield
        return

    def total(sources: Sequence[SourceStatistics]) -> SourceStatistics:
        sent = [source.class_covariance.astype(np.float32) for source in sources]
        combined = len(sources) * combine(BUILT_IN[name], sent, np.ones(len(sources))).astype(np.float64)
        return replace(total_of(sources), class_covariance=combined)

    closed_form = fedrf.federation.closed_form
    with (
        patch.object(closed_form, "suspects", lambda *_: {}),
        patch.object(closed_form, "bounded_weights", lambda weights, _: weights),
        patch.object(closed_form, "total_of", total),
    ):
        yield


def accuracy(method: str, rule: str, attack: str, count: int, target: str, seed: int) -> float:
    """Return the accuracy of the target in percent with `count` hostile sources, of different domains."""
    keys: dict[str, Any] = {
        "method": method,
        "data.name": "benchmarks.hostile:FiveSources",
        "data.target": target,
        "seed": seed,
        "federation.mode": "sync",
        "federation.aggregation": rule,
    }
    rounds = {} if method == "fedrf-oneshot" else {"train.rounds": ROUNDS}
    domains = [name for name in DOMAINS if name != target]
    hostile = [f"{name}-1" for name in domains[:count]]
    with TemporaryDirectory() as folder, hostile_clients(Attack(attack, hostile)), rule_for_statistics(rule):
        result = fedrf.run("digits", keys | rounds, out=f"{folder}/run", local=True)
    assert result.target_accuracy is not None
    return 100 * result.target_accuracy


def report_hostile(method: str, attacks: Sequence[str], targets: Sequence[str], seeds: Sequence[int]) -> None:
    """Print a table: rules in rows; nobody hostile, and one and two hostile sources for each attack, in columns."""
    cases = [("none", 0), *((attack, count) for attack in attacks for count in (1, 2))]
    header = ["0 hostile", *(f"{attack}, {count}" for attack, count in cases[1:])]
    print(f"\n| `{method}` | {' | '.join(header)} |\n{'| --- ' * (len(header) + 1)}|", flush=True)
    for rule in RULES:
        cells = []
        for attack, count in cases:
            runs = [accuracy(method, rule, attack, count, target, seed) for target in targets for seed in seeds]
            cells.append(f"{mean(runs):.1f}")
        print(f"| `{rule}` | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy with hostile sources.")
    parser.add_argument("--methods", nargs="+", default=["fedrf-oneshot", "fedrf-plus"])
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=ATTACKS)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    for method in options.methods:
        report_hostile(method, options.attacks, options.targets, options.seeds)


if __name__ == "__main__":
    main()

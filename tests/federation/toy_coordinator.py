"""A coordinator with toy clients, for tests with numbers computed by hand."""

import asyncio

import numpy as np

from fedrf.config.loader import load_config
from fedrf.federation.checkpoints import CoordinatorFiles
from fedrf.federation.coordinator import Coordinator
from fedrf.ownership import Fence
from fedrf.protocol.envelope import Envelope
from fedrf.protocol.messages import Aligner, Classifier, MeanEmbedding

BASE = {
    "method": "fedrf-plus",
    "model.num_features": 1,
    "model.dim": 2,
    "data.sources": ["rendered", "street"],
    "federation.mode": "sync",
    "align.step": "gradient",
    "federation.checkpoint_seconds": 1e9,
}
A, B, T = "rendered", "street", "handwritten"
ONES = np.ones((2, 2), np.float32)


def coordinator(tmp_path, begun=False, any_round=True, **overrides):
    """Return a coordinator; `begun`: whose clients have greeted; `any_round`: whose clients may begin in any round."""
    config = load_config(None, {**BASE, **{key.replace("__", "."): value for key, value in overrides.items()}})
    (tmp_path / "owner.json").write_text('{"token": "toy"}')
    fence = Fence(tmp_path, "toy")
    server = Coordinator(config, (A, B), T, CoordinatorFiles(tmp_path, fence))
    server.roster.begun = begun
    for name in (A, B, T):
        server.liveness.admit(name, 0)
        server.reception.allow(name, config.train.rounds if any_round else 0)
    return server


def envelope(sender, number, *, embedding=None, aligner=None, classifier=None, phase="round", attempt=0, version=0):
    messages = []
    if embedding is not None:
        messages.append(MeanEmbedding(sender, number, attempt, np.array(embedding, np.float32)))
    if aligner is not None:
        messages.append(Aligner(sender, number, attempt, np.asarray(aligner, np.float32)))
    if classifier is not None:
        messages.append(Classifier(sender, number, attempt, np.resize(np.array(classifier, np.float32), 30)))
    return Envelope(sender, number, attempt, phase, tuple(messages), version)


def run(main):
    return asyncio.run(asyncio.wait_for(main, 20))


async def exchange_all(server, *envelopes):
    replies = await asyncio.gather(*(server.exchange(envelope) for envelope in envelopes))
    return {envelope.sender: reply for envelope, reply in zip(envelopes, replies, strict=True)}

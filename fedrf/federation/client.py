"""A client: its data, its LightningModule and one long `Trainer.fit`, in which a batch is a round.

A plain class; `fedrf.runtime.ray` makes an actor of it. Whatever leaves it goes through `link`, as messages.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import parameters_to_vector

from fedrf.adaptation.held_out import HeldOut
from fedrf.adaptation.scores import evenly
from fedrf.adaptation.stage import Figures, Score, TargetStage, evaluate, judge, predict, vote
from fedrf.config.presets import TARGET_TRAINS
from fedrf.config.schema import Config
from fedrf.data.partition import Integers
from fedrf.data.registry import num_classes
from fedrf.data.samples import Samples
from fedrf.data.validation import hold_out
from fedrf.federation.checkpoints import ClientFiles
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.saver import Saver
from fedrf.federation.warm_start import take_part
from fedrf.files import write_atomically
from fedrf.methods import METHODS, Inbox
from fedrf.models.extractors import make_extractor
from fedrf.models.mean_embedding import OwnEmbedding
from fedrf.models.network import Batch, DomainModel, NoRandomFeatures
from fedrf.models.normalization import moments
from fedrf.models.trunk_rows import TrunkRows, trunk_rows
from fedrf.protocol.messages import (
    Aligner,
    AnyMessage,
    Ciphertexts,
    Classifier,
    Companion,
    Envelope,
    Extractor,
    Features,
    Greeting,
    MeanEmbedding,
    Message,
    Metrics,
    Moments,
    Reply,
    Weights,
)
from fedrf.protocol.schedule import Schedule
from fedrf.tca.random_features import RandomFourierFeatures, median_sigma

Link = Callable[..., Any]
CARRIERS: dict[str, type[Message]] = {one.kind: one for one in (Aligner, Classifier, Extractor, Companion)}
SGD_FACTOR = 100  # how much longer plain steps are than Adam's, which make up for the size of gradients
# For C at a target, whose inputs are long and whose labels are guesses: longer steps follow the first, bad ones away.
GUESSING_FACTOR = 10
ROWS = 1024  # at a time, where all local samples are looked at

# Initial weights come from torch's one generator, and with `--local` clients are threads of one process.
_DRAWING = threading.Lock()
# A trainer that starts changes classes of torch's for a moment, and two at once would leave them broken.
_STARTING = threading.Lock()


class StoppedError(Exception):
    """The coordinator wants to stop while this client prepares its samples."""


class Client:
    """One source, or the target.

    Parameters
    ----------
    samples
        The local samples; without labels at the target.
    link
        Calls a method of the coordinator by name.
    score
        Tells the accuracy of predictions for the local samples; for the records only.
    device
        Where the fixed part of the extractor is computed.
    foreign
        The target's samples, without labels, where data are pooled.
    """

    def __init__(
        self,
        config: Config,
        place: ClientInfo,
        samples: Samples,
        link: Link,
        score: Score,
        device: str = "cpu",
        foreign: Samples | None = None,
    ) -> None:
        self.config, self.place, self.link, self.score, self.device = config, place, link, score, device
        self.schedule = Schedule(config, place.name, place.sources, place.target)
        self.labels = None if samples.labels is None else torch.from_numpy(samples.labels)
        self.training, held_out = self._split(samples)
        self.method = METHODS[config.method]
        self.round = self.model_version = self.generation = 0
        self.committed = self.stopped = False
        self.waited = 0.0
        self.figures: dict[str, float] = {}
        self.ballots: dict[str, dict[str, Tensor]] = {}
        self.anchor: dict[str, Tensor] = {}
        self.stage = TargetStage(config) if self.schedule.is_target and config.adapt.when != "never" else None
        self.model, self.trunk = self._build(samples)
        self.foreign = None if foreign is None else self._rows_of(foreign)
        if self.stage and config.adapt.pseudo_labels:
            self.stage.known = self.trunk
        self.held_out: HeldOut | None = None
        if self.labels is not None and len(held_out):
            self.held_out = HeldOut(self.training, held_out, self.labels, self.own.extractor_changes)
        self.probabilities: Tensor | None = None
        self.has_started: Callable[[], None] = lambda: None
        self._warm_start()
        if config.train.proximal:  # all begin from the same place, as if it were an average
            self.anchor = {kind: self.model.get_part(kind).reshape(-1) for kind in self._trained}

    @property
    def last_round(self) -> int:
        """T."""
        return self.config.train.rounds

    # The life of a client

    def run(self, accelerator: str = "auto") -> None:
        """Train to the end, or until the coordinator says stop."""
        trainer = Trainer(
            max_epochs=1,
            accelerator=accelerator,
            devices=1,
            logger=self._logger(),
            callbacks=[Saver(self)],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            plugins=[LightningEnvironment()],
        )
        with ExitStack() as starting:
            starting.enter_context(_STARTING)
            self.has_started = starting.close
            trainer.fit(self.model, train_dataloaders=Rounds(self), ckpt_path=self.place.checkpoint)
        if not self.stopped and self.commit():  # again, for a checkpoint from after the last round
            self._release_adapter()
            model, trunk = self.model, self.trunk
            votes = list(self.ballots.values()) if self.schedule.ballot else []
            self.probabilities = vote(model, trunk, votes) if votes else predict(model, trunk)
            last = judge(self.probabilities, self.score) | {"final": 1.0}
            self._record(last if self.held_out is None else last | self.held_out.scores(model, trunk))
            weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.model.state_dict().items()}
            file = ClientFiles(self.place.run, self.place.name).final
            write_atomically(file, lambda path: save_file(weights, path))
        self.link("finish", self.place.name)

    def _split(self, samples: Samples) -> tuple[Integers, Integers]:
        """Return the positions of samples to train with, and of those that a source holds out."""
        share = self.config.data.validation
        if samples.labels is None or not share:
            return np.arange(len(samples)), np.arange(0)
        random = np.random.RandomState([self.config.seed, self._position, 0x5C0E])
        training, held_out = hold_out(samples.labels, share, random)
        if not len(held_out):
            self._note(f"data.validation={share:g} of {len(samples)} samples is too few to score with")
        return training, held_out

    @property
    def _position(self) -> int:
        """Which of all clients this is."""
        return (*self.place.sources, self.place.target).index(self.place.name)

    def _build(self, samples: Samples) -> tuple[DomainModel, TrunkRows]:
        """Make the model, once σ is agreed on, and put all samples through the fixed part of the extractor."""
        settings, seed = self.config.model, self.config.seed
        with _DRAWING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            extractor = make_extractor(settings.extractor, samples.content.shape, settings.weights)
            random_state = torch.get_rng_state()
        is_fixed = settings.sharing == "frozen"

        def rows_behind(layers: nn.Module, samples: Samples) -> TrunkRows:
            return trunk_rows(
                layers,
                extractor.prepare,
                samples,
                settings,
                self.device,
                torch.get_num_threads(),
                self._progress,
                self._note,
            )

        settled = extractor.settled() if is_fixed else extractor.trunk
        self._rows_of = partial(rows_behind, settled)
        trunk = self._rows_of(samples)
        self._rows_below: Callable[[], TrunkRows] = lambda: trunk
        if self.stage and settled is not extractor.trunk:
            self._rows_below = lambda: rows_behind(extractor.trunk, samples)
        with torch.no_grad():
            some = trunk.pieces(self.training[evenly(len(self.training), ROWS)], ROWS)
            extracted = torch.cat([piece if is_fixed else extractor.adapter(piece) for piece in some])
            has_kernel = settings.kernel != "none"
            width = median_sigma(normalize(extracted), settings.kernel) if has_kernel else 1.0
        features = 2 * settings.num_features if has_kernel else extractor.out_features
        # Before anybody goes on from the greeting: a trainer that starts puts back the state of the one generator.
        with _DRAWING, torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random_state)
            model = DomainModel(
                extractor.adapter,
                NoRandomFeatures(features),
                settings.dim,
                num_classes(self.config.data),
                settings.classifier,
                settings.scale,
                settings.normalization,
            )
            torch.manual_seed(seed)
            model.adopt(self.method.companion(self.config, self._num_peers, features))
        sigma, reply = self._greet(width, extractor.out_features, model)
        if has_kernel:
            model.random_features = RandomFourierFeatures(
                extractor.out_features, settings.num_features, sigma, settings.kernel, seed
            )
        model.adapter_is_applied = is_fixed
        align = self.config.align
        moves = self.schedule.learns_extractor or settings.sharing == "averaged"
        # A part of the module, so that checkpoints have its memory.
        self.own = OwnEmbedding(features, align.message, align.memory, align.refresh, moves)
        model.add_module("own", self.own)
        model.adapter.requires_grad_(self.schedule.learns_extractor)
        model.play_round, model.make_optimizers = self._play_round, self._optimizers
        self.welcome = reply
        return model, trunk

    def _progress(self, done: int, total: int) -> None:
        if self.link("prepare", self.place.name, done / total):
            raise StoppedError

    def _note(self, text: str) -> None:
        self.link("note", f"{self.place.name}: {text}")

    def _warm_start(self) -> None:
        """Take W from federated closed-form RF-TCA, unless there is a model already."""
        form = self.config.align.warm_start
        if form != "none" and not self.welcome.parts and self.place.checkpoint is None:
            aligner = take_part(form, self.place, self.link, lambda: self._all_features(self.model))
            self.model.set_part("aligner", aligner)

    def join(self) -> None:
        """Go on where the others are, if that is further than this client came, by itself or in its checkpoint."""
        is_behind = self.welcome.round > self.round or self.place.checkpoint is None
        if is_behind and not self.committed:
            self._follow(self.model, self.welcome)
            self.round = min(self.welcome.round, self.last_round)
        for figures in self.stage.history if self.stage else ():
            self._record(figures)

    @property
    def _num_peers(self) -> int:
        """From how many clients messages come here: from all sources, or from the target."""
        return len(self.place.sources) if self.schedule.is_target else 1

    def _greet(self, width: float, features: int, model: DomainModel) -> tuple[float, Reply]:
        count = len(self.training) if self.config.federation.aggregation == "weighted" else 1
        sizes = {kind: sum(one.numel() for one in parts) for kind, parts in model.parts().items()}
        companion = sizes["companion"] if self.method.shares_companion else 0
        greeting = Greeting(
            self.place.name, 0, self.place.attempt, width, sizes["extractor"], count, features, companion
        )
        answer: tuple[float, Reply] = self.link("greet", greeting)
        if answer[1].stop:
            raise StoppedError
        return answer

    def _optimizers(self, model: DomainModel) -> list[torch.optim.Optimizer]:
        """Return those for the rounds, of network and companion, and at the target one for the stage after them."""
        parts, settings = model.parts(), self.config.train
        # The aligner is always among them: an optimiser needs something, even where nothing is trained.
        kinds = ("aligner", "extractor", "classifier")
        trained = {kind: parts[kind] for kind in kinds if kind in ("aligner", *self.schedule.trained) and parts[kind]}
        # Adam would undo the weight of a loss that has no cross-entropy beside it, and collapse what it is to align.
        guesses = self.schedule.is_target and self.config.method in TARGET_TRAINS
        if guesses or settings.optimizer == "sgd":
            factors = {"classifier": GUESSING_FACTOR} if guesses else {}
            groups = [
                {"params": ones, "lr": factors.get(kind, SGD_FACTOR) * settings.lr} for kind, ones in trained.items()
            ]
            optimizers: list[torch.optim.Optimizer] = [torch.optim.SGD(groups, fused=True)]
        else:
            every = [one for ones in trained.values() for one in ones]
            optimizers = [torch.optim.Adam(every, lr=settings.lr, fused=True)]
        if parts["companion"]:
            optimizers.append(torch.optim.Adam(parts["companion"], lr=settings.lr, fused=True))
        model.round_optimizers = tuple(range(len(optimizers)))
        return optimizers + ([self.stage.optimizer(model)] if self.stage and self.stage.is_last else [])

    def _logger(self) -> TensorBoardLogger | bool:
        if not self.config.track.tensorboard:
            return False
        return TensorBoardLogger(self.place.run, name="tensorboard", version=self.place.name)

    # A round

    def batch(self, number: int, size: int) -> Batch:
        """Return the samples of one round, from nothing but seed, client and round: resuming needs no memory."""
        if number > self.last_round and self.commit():  # first, for nobody else should wait for what follows
            self._release_adapter()
        count = len(self.training)
        size = min(size, count)
        epoch, place = divmod(number - 1, max(1, count // size))
        order = np.random.RandomState([self.config.seed, self._position, epoch, 0xDA7A]).permutation(count)
        rows = torch.from_numpy(self.training[order[place * size : (place + 1) * size]])
        labels = None if self.labels is None else self.labels[rows]
        return Batch(number, rows, self.trunk[rows], labels, self._foreign_batch(number, size))

    def _foreign_batch(self, number: int, size: int) -> Tensor | None:
        if self.foreign is None:
            return None
        random = np.random.RandomState([self.config.seed, number, 0xF0E1])
        return self.foreign[random.permutation(len(self.foreign))[:size]]

    def _release_adapter(self) -> None:
        """After the rounds, adaptation may move what they left alone: from then on rows come from below it."""
        if self.round <= self.last_round or not self.model.adapter_is_applied:
            return
        try:
            self.trunk, self.model.adapter_is_applied = self._rows_below(), False
        except StoppedError:
            self.stopped = True

    def _play_round(self, model: DomainModel, batch: Batch) -> None:
        """One round of algorithm 5, or one step of the stage after the last."""
        number, schedule = batch.round, self.schedule
        if number > self.last_round:
            assert self.stage is not None
            if self.commit() and not self.stopped:
                self._record(self.stage.step(model, batch, self.trunk, self.score, number - self.last_round))
            else:
                self.round -= 1  # asked to stop: this step is still to be done
            return
        self.waited, began = 0.0, time.perf_counter()
        time.sleep(self.config.federation.delays.get(self.place.name, 0))
        due = schedule.parts_after(number - 1)
        if schedule.settles_first(number - 1):
            self._exchange(model, number, "commit", self._parts(model, due, number))
            due = ()
        with torch.set_grad_enabled(schedule.trains):
            features = model.features(batch.inputs)
            carrier, own = self._own(model, features)
        messages = self._parts(model, due, number)
        if schedule.sends_embedding(number):
            messages.append(self._message(carrier, own, number))
        reply = self._exchange(model, number, "round", messages)
        peers = tuple(torch.tensor(one.values, device=own.device) for one in reply.embeddings)
        if self.held_out and peers and carrier is MeanEmbedding:
            self.held_out.target_mean = peers[0].cpu()
        if batch.foreign is not None:
            peers = (model.align(model.features(batch.foreign)),)  # which W and G are trained for, too
        self._learn(model, batch, features, Inbox(own, peers, self._places(reply), self.ballots, schedule.is_target))
        self.figures |= {"seconds": time.perf_counter() - began, "waited": self.waited}

    def _places(self, reply: Reply) -> tuple[int, ...]:
        senders = (one.sender for one in reply.embeddings)
        return tuple(self.place.sources.index(one) if one in self.place.sources else 0 for one in senders)

    def _own(self, model: DomainModel, features: Tensor) -> tuple[type[Message], Tensor]:
        """Return what this client sends to its peers, and the kind of message that carries it."""
        if self.config.align.message == "samples":
            hidden = self.config.federation.encryption != "none" and not self.schedule.is_target
            return Ciphertexts if hidden else Features, model.align(features)
        if self.config.align.message == "moments":
            return Moments, moments(features @ model.aligner)
        whole = self.schedule.uses_embeddings
        return MeanEmbedding, self.own(features, self._all_features(model)) if whole else features.mean(0)

    def _learn(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox) -> None:
        loss = self.method.target_loss if self.schedule.is_target else self.method.source_loss
        terms = loss(model, batch, features, inbox, self.config)
        if self.stage and not self.stage.is_last:
            joint = self.stage.loss(model, batch, features, self.trunk, batch.round)
            terms |= {"loss": terms.get("loss", 0) + joint, "adaptation": joint.detach()}
        if "loss" in terms and self.anchor:
            terms["loss"] = terms["loss"] + self.config.train.proximal / 2 * self._drift(model)
        self.figures = {"round": float(batch.round), **{name: float(term.detach()) for name, term in terms.items()}}
        if self._evaluates(batch.round):
            self.figures |= self._evaluate(model)
        if "loss" in terms and terms["loss"].requires_grad:
            model.step(terms["loss"])
        if self.config.track.tensorboard:
            model.log_dict({name: value for name, value in self.figures.items() if name != "round"})

    def _drift(self, model: DomainModel) -> Tensor:
        """Return the squared distance to the average that came last."""
        parts = model.parts()
        return torch.stack(
            [
                (parameters_to_vector(parts[kind]) - values.to(model.device)).square().sum()
                for kind, values in self.anchor.items()
            ]
        ).sum()

    def _evaluate(self, model: DomainModel) -> Figures:
        """Return the figures of the target's predictions, or of a source's for what it holds out."""
        if self.schedule.is_target:
            return evaluate(model, self.trunk, self.score)
        return self.held_out.scores(model, self.trunk) if self.held_out else {}

    def _evaluates(self, number: int) -> bool:
        return number % self.config.track.evaluate_every == 0 and self.config.federation.prediction == "average"

    def commit(self) -> bool:
        """After the last round: one more aggregate, and for a vote the networks of all sources; tell if it is done.

        It is not when the coordinator wants to stop: then nobody waits for what is missing.
        """
        if self.committed:
            return True
        number = self.last_round + 1
        parts = self._parts(self.model, self.schedule.parts_after(self.last_round), number)
        self._exchange(self.model, number, "final", parts)
        if self.schedule.ballot:
            ballot = () if self.schedule.is_target else self.schedule.ballot
            self._exchange(self.model, number, "ballot", self._parts(self.model, ballot, number))
        self.committed = not self.stopped
        return self.committed

    # Messages

    def _exchange(self, model: DomainModel, number: int, phase: str, messages: list[AnyMessage]) -> Reply:
        """Send, load what comes back, and remember what the coordinator wants next."""
        if self.figures:
            messages = [*messages, Metrics(self.place.name, number, self.place.attempt, self.figures)]
            self.figures = {}
        envelope = Envelope(self.place.name, number, self.place.attempt, phase, tuple(messages), self.model_version)
        began = time.perf_counter()
        reply: Reply = self.link("exchange", envelope)
        self.waited += time.perf_counter() - began
        self._follow(model, reply)
        self.round = max(self.round, min(reply.round, self.last_round))
        self.generation = max(self.generation, reply.generation)
        self.stopped = self.stopped or reply.stop
        return reply

    def _follow(self, model: DomainModel, reply: Reply) -> None:
        for kind, values in reply.parts.items():
            model.set_part(kind, torch.tensor(values))
            if self.config.train.proximal and kind in self._trained:
                self.anchor[kind] = torch.tensor(values).reshape(-1)
        if reply.ballots:
            self.ballots = {
                name: {kind: torch.tensor(values) for kind, values in parts.items()}
                for name, parts in reply.ballots.items()
            }
        self.own.outdated = self.own.outdated or "extractor" in reply.parts
        self.model_version = reply.model_version

    @property
    def _trained(self) -> tuple[str, ...]:
        return self.schedule.trained + (("companion",) if self.method.shares_companion else ())

    def _parts(self, model: DomainModel, kinds: tuple[str, ...], number: int) -> list[AnyMessage]:
        """Return messages with these parts; the companion goes with the aligner, and so do weights of the others."""
        if "aligner" in kinds and self.method.shares_companion:
            kinds = (*kinds, "companion")
        parts: list[AnyMessage] = [self._message(CARRIERS[kind], model.get_part(kind), number) for kind in kinds]
        if parts and self.schedule.is_target and self.ballots and self.method.weigh is not None:
            some = self.trunk[torch.from_numpy(self.training[evenly(len(self.training), ROWS)])].to(model.device)
            weights, own = self.method.weigh(model, some, self.ballots)
            chosen = [weights.get(name, 1.0) for name in self.place.sources]
            parts.append(self._message(Weights, torch.tensor([*chosen, own]), number))
        return parts

    def _message(self, carrier: type[Message], values: Tensor, number: int) -> Message:
        # A copy: NumPy would share memory with weights that go on changing.
        array = values.detach().to("cpu", torch.float32).numpy().copy()
        return carrier(self.place.name, number, self.place.attempt, array)

    def _record(self, figures: dict[str, float]) -> None:
        """Report figures outside of a round."""
        if figures:
            number = min(self.round, self.last_round)
            self.stopped |= self.link("report", Metrics(self.place.name, number, self.place.attempt, figures))

    # All local samples

    def _all_features(self, model: DomainModel) -> Iterator[Tensor]:
        """Yield the random features of all samples to train with, in pieces that bound the memory."""
        with torch.no_grad():
            for rows in self.trunk.pieces(self.training, ROWS):
                yield model.features(rows.to(model.device))


class Rounds:
    """What the trainer iterates over: a batch a round, then, at a target that adapts at the end, a batch a step.

    Sized, so that Lightning does not fetch ahead: the next round's number may change with the reply of this one.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.steps = client.config.adapt.steps if client.stage and client.stage.is_last else 0

    def __len__(self) -> int:
        return 10**9  # more than there can be: `__iter__` knows the end, and a batch may have to be played twice

    def __iter__(self) -> Iterator[Batch]:
        client = self.client
        while not client.stopped and client.round < client.last_round + self.steps:
            client.round += 1
            is_stage = client.round > client.last_round
            sizes = client.config.adapt if is_stage else client.config.train
            yield client.batch(client.round, sizes.batch_size)

"""The LightningModule of a client in a federation. Its `training_step` is the client's side of a round.

One batch is one round: the client computes its random features, exchanges messages with its peers, loads the averages
that come back, and only then computes the loss and takes a step. Optimisation is therefore manual.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from fedrf.adaptation.stage import TargetStage
from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.data.domains import num_classes
from fedrf.federation.channel import Channel
from fedrf.federation.local_samples import LocalSamples
from fedrf.federation.losses import as_numbers, check_losses
from fedrf.federation.optimizers import round_optimizers
from fedrf.federation.references import References
from fedrf.federation.resting import moved, training_state
from fedrf.federation.statistics_exchange import exchange_statistics
from fedrf.methods.base import Inbox, Losses
from fedrf.models.devices import upload
from fedrf.models.extractors.extractor import CachedExtractor
from fedrf.models.mean_embedding import OwnEmbedding
from fedrf.models.network import Batch, DomainModel, NoRandomFeatures
from fedrf.models.parts import get_part, parameters_of, set_part
from fedrf.protocol.compression import codec_of
from fedrf.protocol.envelope import Reply
from fedrf.protocol.message import KINDS, ArrayMessage, Message
from fedrf.protocol.messages import MeanEmbedding, SourceWeights
from fedrf.protocol.schedule import Schedule
from fedrf.tca.random_features import RandomFourierFeatures


class FederatedModule(DomainModel):
    """One client's network, trained in rounds.

    Parameters
    ----------
    extractor, random_features
        G and Σ, as for `DomainModel`.
    config
        The configuration.
    schedule
        Which messages the client sends, and when.
    channel
        The connection to the coordinator.
    samples
        The client's samples.
    stage
        Adaptation at the target, if there is any.
    """

    def __init__(
        self,
        extractor: CachedExtractor,
        random_features: RandomFourierFeatures | NoRandomFeatures,
        config: Config,
        schedule: Schedule,
        channel: Channel,
        samples: LocalSamples,
        stage: TargetStage | None = None,
    ) -> None:
        settings, self.method = config.model, METHODS.find(config.method)
        super().__init__(
            extractor,
            random_features,
            settings.dim,
            num_classes(config.data),
            settings.classifier,
            settings.scale,
            self.method.normalizes,
            config.train.lr,
        )
        self.automatic_optimization = False
        self.config, self.schedule, self.channel, self.samples, self.stage = config, schedule, channel, samples, stage
        self.extractor: CachedExtractor
        align, size = config.align, random_features.out_features
        # A submodule, so that checkpoints keep its running means.
        self.own_embedding = OwnEmbedding(size, align.message, align.memory, align.refresh, schedule.learns_extractor)
        self.num_round_optimizers = 1
        self.references = References(channel.progress, codec_of(config.federation.compression))
        self.averaged = schedule.trained + (("auxiliary",) if self.method.shares_auxiliary else ())

    # A round

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """Do the client's side of one round of algorithm 5, or one step of adaptation after the last round."""
        number, schedule, channel = batch.round, self.schedule, self.channel
        if number > self.config.train.rounds:
            self.adaptation_step(batch)
            return
        channel.waited, began = 0.0, channel.now()
        due = schedule.parts_after(number - 1)
        if schedule.averages_first(number - 1):
            self.exchange("commit", number, self.part_messages(due, number))
            due = ()
            if channel.progress.round < number or not schedule.takes_part(number):
                return
            if schedule.joins(number):  # the time in which it skipped rounds does not count
                channel.waited, began = 0.0, channel.now()
        channel.begin(number, self.config.federation.delays.get(schedule.name, 0.0))
        with torch.set_grad_enabled(bool(schedule.trained)):
            features = self.features(batch.inputs)
            own = self.method.own_message(self, features)
        messages = self.part_messages(due, number)
        if schedule.sends_embedding(number):
            messages.append(channel.message(self.method.message_of(schedule.is_target), own, number))
        reply = self.exchange("round", number, messages)
        losses = self.losses(batch, features, self.inbox(own, reply, batch))
        figures = as_numbers(losses)
        if number % self.config.track.evaluate_every == 0 and self.config.federation.prediction == "average":
            figures |= self.samples.evaluate(self, schedule.is_target)
        if "loss" in losses:
            factor = self.method.rate_factor(number, self.config.train.rounds)
            self.step(losses["loss"], slice(0, self.num_round_optimizers), factor)
        if self.config.track.tensorboard:
            self.log_dict(figures)
        timing = {"seconds": channel.now() - began, "waited": channel.waited, **channel.moment()}
        channel.progress.figures = {"round": float(number), **figures, **timing}

    def mean_embedding(self, features: Tensor) -> Tensor:
        """Return this client's Σℓ, from the random features of the batch, with its gradient."""
        if not self.schedule.compares:
            return features.mean(0)
        own: Tensor = self.own_embedding(features, self.all_features())
        return own

    def all_features(self) -> Iterator[Tensor]:
        """Yield the random features of all samples to train with, in pieces."""
        with torch.no_grad():
            for piece in self.samples.training_pieces():
                yield self.features(piece.to(self.device))

    def inbox(self, own: Tensor, reply: Reply, batch: Batch) -> Inbox:
        """Return what the losses may use besides the batch."""
        sources = self.schedule.sources
        peers = tuple(torch.tensor(message.values, device=own.device) for message in reply.embeddings)
        if self.samples.held_out and peers and self.method.message is MeanEmbedding:
            self.samples.held_out.target_mean = torch.tensor(reply.embeddings[0].values)
        if batch.target_inputs is not None:
            peers = (self.align(self.features(batch.target_inputs)),)  # with gradient: this client trains on both
        senders = (message.sender for message in reply.embeddings)
        positions = tuple(sources.index(sender) if sender in sources else 0 for sender in senders)
        return Inbox(own, peers, positions, self.channel.progress.source_models, self.schedule.is_target)

    def losses(self, batch: Batch, features: Tensor, inbox: Inbox) -> Losses:
        """Return the terms of the method's loss, with adaptation within the rounds and the penalty of FedProx."""
        loss = self.method.target_loss if self.schedule.is_target else self.method.source_loss
        terms = loss(self, batch, features, inbox, self.config)
        check_losses(terms, self.config.method, self.schedule)
        if self.stage and not self.stage.is_last:
            self.stage.prepare(self, self.samples.rows, batch.round)
            joint = self.stage.loss(self, batch, features, batch.round)
            terms |= {"loss": terms.get("loss", 0) + joint, "adaptation": joint.detach()}
        if "loss" in terms and (anchor := self.channel.progress.anchor):
            drift = [
                (parameters_to_vector(parameters_of(self, part)) - values.to(self.device)).square().sum()
                for part, values in anchor.items()
            ]
            terms["loss"] = terms["loss"] + self.config.train.proximal / 2 * torch.stack(drift).sum()
        return terms

    def step(self, loss: Tensor, which: slice, rate_factor: float = 1.0) -> None:
        """Take one step against the loss with some of the optimisers, their rates times a factor."""
        chosen = self._all_optimizers()[which]
        for optimizer in chosen:
            for group in optimizer.param_groups:
                group["lr"] = rate_factor * group.setdefault("initial_lr", group["lr"])
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in chosen:
            optimizer.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimisers of the rounds, and at the target one for the adaptation after them."""
        optimizers = round_optimizers(self, self.config, self.schedule)
        self.num_round_optimizers = len(optimizers)
        return optimizers + ([self.stage.optimizer(self)] if self.stage and self.stage.is_last else [])

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move the tensors of a batch; positions stay where they are."""
        if not isinstance(batch, Batch):  # of another loader, such as one for `Trainer.predict`
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        moved: dict[str, Any] = {
            name: None if value is None else upload(value, device)
            for name, value in batch._asdict().items()
            if name in ("inputs", "labels", "target_inputs")
        }
        return batch._replace(**moved)

    # Messages

    def part_messages(self, parts: tuple[str, ...], number: int) -> list[Message]:
        """Return messages with these parts; the auxiliary network and weights of the sources go with the aligner."""
        if "aligner" in parts and self.method.shares_auxiliary:
            parts = (*parts, "auxiliary")
        parts = tuple(part for part in parts if parameters_of(self, part))  # an extractor may have none
        channel, models = self.channel, self.channel.progress.source_models
        messages: list[Message] = [self._part_message(part, number) for part in parts]
        if messages and self.schedule.is_target and models and self.method.weighs_sources:
            some = self.samples.rows[torch.from_numpy(self.samples.some_positions())].to(self.device)
            weights, own = self.method.weigh_sources(self, some, models)
            values = torch.tensor([*(weights.get(name, 1.0) for name in self.schedule.sources), own])
            messages.append(channel.message(SourceWeights, values, number))
        return messages

    def _part_message(self, part: str, number: int) -> ArrayMessage:
        message = self.channel.message(_kind(part), get_part(self, part), number)
        return replace(message, values=cast(Any, self.references.shorten(part, message.values)))

    def exchange(self, phase: str, number: int, messages: list[Message]) -> Reply:
        """Send messages and load what comes back."""
        progress = self.channel.progress
        with self._resting() if phase == "commit" and self.schedule.joins(number) else nullcontext():
            reply = self.channel.exchange(phase, number, messages)
        self.load(reply)
        if self.schedule.joins(number) and phase != "round":
            if reply.stop and reply.round < number:  # the run stops in the rounds that the client skips
                progress.round = min(reply.round, progress.round)
                progress.saved_version = progress.checkpoint_version
            elif phase == "commit":  # versions that began in these rounds have its older file
                progress.saved_version = progress.checkpoint_version
        if reply.refused:
            self._forget()
        return reply

    def _resting(self) -> AbstractContextManager[None]:
        """Free memory while this client waits for its next round, if its process has a store for that."""
        if self.channel.store is None:
            return nullcontext()
        return moved(training_state(self.parameters(), self._all_optimizers()), self.channel.store)

    def _all_optimizers(self) -> list[Any]:
        optimizers = self.optimizers()
        return optimizers if isinstance(optimizers, list) else [optimizers]

    def _forget(self) -> None:
        """Drop what may have spoilt messages that were refused, besides the averages that have replaced the parts."""
        for optimizer in self._all_optimizers():
            optimizer.state.clear()
        self.own_embedding.reset()
        self.references.forget_residuals()

    def load(self, reply: Reply) -> None:
        """Load the averages and source models of a reply."""
        progress = self.channel.progress
        for part, sent in reply.parts.items():
            values = self.references.restore(part, sent, reply.numbers.get(part))
            set_part(self, part, torch.tensor(values))
            if self.config.train.proximal and part in self.averaged:
                progress.anchor[part] = torch.tensor(values, device=self.device).reshape(-1)
        if reply.source_models:
            progress.source_models = {
                name: {part: torch.tensor(values, device=self.device) for part, values in parts.items()}
                for name, parts in reply.source_models.items()
            }
        if "extractor" in reply.parts:
            self.own_embedding.renew()
        progress.model_version = reply.model_version

    # After the rounds

    def commit(self) -> bool:
        """Send the last parts after the last round, once; tell whether that is done.

        It is not if the coordinator asked to stop, because then no client waits for what is missing.
        """
        progress, number = self.channel.progress, self.config.train.rounds + 1
        if not progress.committed:
            last = self.schedule.parts_after(self.config.train.rounds)
            self.exchange("final", number, self.part_messages(last, number))
            if self.schedule.takes_statistics:
                exchange_statistics(self, number)
            if vote := self.schedule.parts_for_vote:
                parts = () if self.schedule.is_target else vote
                self.exchange("source_models", number, self.part_messages(parts, number))
            progress.committed = not progress.stopped
        return progress.committed

    def adaptation_step(self, batch: Batch) -> None:
        """Take one step of adaptation, and report figures from time to time."""
        assert self.stage is not None
        progress, number = self.channel.progress, batch.round - self.config.train.rounds
        if not progress.committed or progress.stopped:
            progress.round -= 1  # this step is still to be done
            return
        if not self.stage.declined:
            self.stage.prepare(self, self.samples.rows, number)
        if self.stage.declined:
            if number in (1, self.config.adapt.steps):  # twice: a coordinator that was restarted has no notes
                self.channel.note(f"{self.schedule.name}: no adaptation, because {self.stage.declined}")
            return
        self.channel.begin(batch.round)
        self.extractor.adapter.requires_grad_(True)
        loss = self.stage.loss(self, batch, self.features(batch.inputs), number)
        self.step(loss, slice(-1, None))
        if number % self.config.track.evaluate_every == 0:
            figures = self.samples.evaluate(self, is_target=True)
            self.stage.history.append({"step": float(number), "loss": float(loss.detach()), **figures})
            self.channel.report(self.stage.history[-1])


def _kind(part: str) -> type[ArrayMessage]:
    kind = KINDS[part]
    assert issubclass(kind, ArrayMessage)
    return kind

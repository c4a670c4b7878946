"""A client: builds its module, trains it in one long `Trainer.fit`, in which a batch is a round, and writes results.

A plain class; `fedrf.runtime` runs it in an actor or in a thread. What leaves it goes through its channel, as messages.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn.functional import normalize

from fedrf.adaptation.evaluation import Accuracy, Figures, figures_of, majority_vote, predict
from fedrf.adaptation.held_out import HeldOut
from fedrf.adaptation.model_scores import MODEL_SCORES, model_scores
from fedrf.adaptation.stage import TargetStage
from fedrf.config.registry import AGGREGATION_RULES
from fedrf.config.schema import Config
from fedrf.data.draws import Draws
from fedrf.data.partition import Integers
from fedrf.data.samples import Samples
from fedrf.data.validation import hold_out
from fedrf.federation.channel import Channel
from fedrf.federation.checkpoints import ClientFiles
from fedrf.federation.local_samples import PIECE, LocalSamples
from fedrf.federation.module import FederatedModule
from fedrf.federation.round_batches import RoundBatches, uncache_adapter
from fedrf.federation.storage import Storage
from fedrf.federation.trainer import make_trainer, release
from fedrf.federation.warm_start import warm_started_aligner
from fedrf.models.devices import CPU, Device
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.extractor import CachedExtractor, Extractor
from fedrf.models.network import NoRandomFeatures
from fedrf.models.parts import get_part, parameters_of, set_part
from fedrf.models.precision import AUTOCAST
from fedrf.models.trunk_rows import TrunkRows, trunk_rows
from fedrf.protocol.envelope import Reply
from fedrf.protocol.schedule import Schedule
from fedrf.tca.random_features import RandomFourierFeatures, median_sigma, shared_frequencies

# Initial weights come from torch's global generator, and with `--local` clients are threads of one process.
_DRAWING = threading.Lock()
# A starting trainer patches classes of torch for a moment; two at once would leave them broken.
_STARTING = threading.Lock()
# Prefixes of names in final.safetensors, whose format does not change with the names of modules.
NAMES_IN_FILES = {"extractor.adapter.": "adapter.", "auxiliary.": "companion.", "own_embedding.": "own."}


class Client:
    """One source, or the target.

    Parameters
    ----------
    config
        The configuration.
    channel
        The connection to the coordinator.
    samples
        The local samples; without labels at the target.
    accuracy
        Computes the accuracy of predictions for the local samples; for the records only.
    storage
        Where the client's files are.
    device
        Where everything is computed.
    target_samples
        The target's samples, without labels, for references that pool data.
    decoders
        Number of threads that decode images.

    Attributes
    ----------
    probabilities
        Class probabilities of all samples at the end of the run.
    """

    def __init__(
        self,
        config: Config,
        channel: Channel,
        samples: Samples,
        accuracy: Accuracy,
        storage: Storage,
        device: Device = CPU,
        target_samples: Samples | None = None,
        decoders: int = 1,
    ) -> None:
        self.config, self.channel, self.accuracy, self.storage = config, channel, accuracy, storage
        self.device, self.decoders = device, decoders
        self.info = info = channel.info
        self.schedule = Schedule(config, info.name, info.sources, info.target)
        self.probabilities: Tensor | None = None
        self._has_joined = False
        self.module, self.welcome = self._build(samples, target_samples)
        self._warm_start()
        if config.train.proximal:  # as if the common initial weights were an average
            module = self.module
            self.channel.progress.anchor = {part: get_part(module, part).reshape(-1) for part in module.averaged}

    # Building

    def _build(self, samples: Samples, target_samples: Samples | None) -> tuple[FederatedModule, Reply]:
        """Compute the frozen part of the extractor for all samples, draw the network, and agree on σ."""
        settings, seed = self.config.model, self.config.seed
        with _DRAWING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            extractor = make_extractor(settings.extractor, samples.content.shape, settings.weights)
            random_state = torch.get_rng_state()
        is_frozen = settings.sharing == "frozen"
        draws = Draws(seed, self.config.federation.private_batches)
        stage = self._stage(extractor, draws)
        local = self._local_samples(extractor, samples, target_samples, stage, draws)
        cached = CachedExtractor(extractor.adapter, extractor.out_features, adapter_is_applied=is_frozen)
        cached.to(self.device.torch)
        width = self._kernel_width(cached, local)
        size = extractor.out_features if settings.kernel == "none" else 2 * settings.num_features
        # Before greeting: a trainer that starts in another thread restores the state of the global generator.
        with _DRAWING, torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random_state)
            placeholder = NoRandomFeatures(size)
            module = FederatedModule(cached, placeholder, self.config, self.schedule, self.channel, local, stage)
            torch.manual_seed(seed)
            module.add_auxiliary(module.method.auxiliary_network(self.config, self.schedule.num_peers, size))
        sigma, welcome = self._greet(width, module, size)
        if settings.kernel != "none":
            size, width = settings.num_features, extractor.out_features
            omega = shared_frequencies(size, width, sigma, settings.kernel, seed)
            module.random_features = RandomFourierFeatures(width, size, sigma, settings.kernel, seed, frequencies=omega)
        cached.adapter.requires_grad_(self.schedule.learns_extractor)
        module.autocast = AUTOCAST.get(self.config.train.precision)
        return module.to(self.device.torch), welcome

    def _stage(self, extractor: Extractor, draws: Draws) -> TargetStage | None:
        """Return the adaptation at the target, unless it is switched off or has nothing to train after the rounds."""
        if not self.schedule.is_target or self.config.adapt.when == "never":
            return None
        if self.config.adapt.when == "last" and not list(extractor.adapter.parameters()):
            self._note("no adaptation after the rounds, because the extractor has no parameters to train")
            return None
        return TargetStage(self.config, draws)

    def _local_samples(
        self,
        extractor: Extractor,
        samples: Samples,
        target_samples: Samples | None,
        stage: TargetStage | None,
        draws: Draws,
    ) -> LocalSamples:
        # Not `self`, which the rows would keep alive.
        settings, channel, device, decoders = self.config.model, self.channel, self.device, self.decoders

        def compute(layers: torch.nn.Module, samples: Samples) -> TrunkRows:
            progress, note = channel.report_preparation, channel.note
            return trunk_rows(layers, extractor.prepare, samples, settings, device, decoders, progress, note)

        frozen = extractor.frozen_layers() if settings.sharing == "frozen" else extractor.trunk
        rows = compute(frozen, samples)
        if stage and self.config.adapt.pseudo_labels:
            stage.initial_rows = rows
        # After the rounds the target may train an adapter that was frozen: it then needs the outputs of the trunk.
        needs_trunk = stage is not None and frozen is not extractor.trunk
        training, held_out = self._split(samples)
        target_rows = None if target_samples is None else compute(frozen, target_samples)
        scores = None
        if samples.labels is not None and len(held_out):
            scores = HeldOut(training, held_out, torch.from_numpy(samples.labels), self.schedule.learns_extractor)
        return LocalSamples(
            rows,
            samples.labels,
            training,
            self.info.position,
            draws,
            self.accuracy,
            self.config.track.select,
            partial(compute, extractor.trunk, samples) if needs_trunk else lambda: rows,
            scores,
            target_rows,
        )

    def _split(self, samples: Samples) -> tuple[Integers, Integers]:
        """Return the positions of samples to train with, and of those that a source holds out."""
        share = self.config.data.validation
        if samples.labels is None or not share:
            return np.arange(len(samples)), np.arange(0)
        # From the seed even if batches are private: with a secret, each run would send Σℓ of other samples.
        random = np.random.RandomState([self.config.seed, self.info.position, 0x5C0E])
        training, held_out = hold_out(samples.labels, share, random)
        if not len(held_out):
            self._note(f"data.validation={share:g} of {len(samples)} samples is too few to score with")
        return training, held_out

    @torch.no_grad()
    def _kernel_width(self, extractor: CachedExtractor, samples: LocalSamples) -> float:
        """Return σ by the median of distances between some of the samples."""
        kernel, name = self.config.model.kernel, self.config.model.extractor
        positions = samples.some_positions()
        pieces = samples.rows.pieces(positions[:1] if kernel == "none" else positions, PIECE)
        features = torch.cat([extractor(piece.to(self.device.torch)) for piece in pieces])
        if features.shape[1:] != (extractor.out_features,):
            raise ValueError(
                f"model.extractor={name}: a sample has features of shape {tuple(features.shape[1:])}; "
                f"out_features is {extractor.out_features}"
            )
        return 1.0 if kernel == "none" else median_sigma(normalize(features), kernel)

    def _greet(self, width: float, module: FederatedModule, features: int) -> tuple[float, Reply]:
        weighs = AGGREGATION_RULES.find(self.config.federation.aggregation).weights == "samples"
        sent = ("extractor", "auxiliary") if module.method.shares_auxiliary else ("extractor",)
        sizes = {part: sum(value.numel() for value in parameters_of(module, part)) for part in sent}
        count = len(module.samples.training) if weighs else 1
        return self.channel.greet(width, count, features=features, **sizes)

    def _note(self, text: str) -> None:
        self.channel.note(f"{self.info.name}: {text}")

    def _warm_start(self) -> None:
        """Take W from federated closed-form RF-TCA, unless the federation or a checkpoint has one already."""
        form = self.config.align.warm_start
        if form != "none" and not self.welcome.parts and self.info.checkpoint is None:
            set_part(self.module, "aligner", warm_started_aligner(form, self.channel, self.module.all_features))

    # Running

    def run(self) -> None:
        """Train to the end, or until the coordinator asks to stop."""
        trainer = None
        try:
            with ExitStack() as starting:
                starting.enter_context(_STARTING)
                trainer = make_trainer(self.module, self.device, self.storage, partial(self._on_start, starting))
                files, version = ClientFiles(self.info.run, self.info.name), self.info.checkpoint
                path = None if version is None else files.name(version)
                trainer.fit(self.module, train_dataloaders=RoundBatches(self.module), ckpt_path=path)
            self.module.to(self.device.torch)  # a trainer that ends moves the module to the CPU
            if not self._has_joined:  # Lightning does not start again after a checkpoint of the last round
                self._join()
            # Committed again, because a checkpoint may be of the last round.
            if not self.channel.progress.stopped and self.module.commit():
                self._write_results()
            self.channel.finish()
        finally:
            if trainer is not None:
                release(trainer)

    def _on_start(self, starting: ExitStack) -> None:
        starting.close()
        if self.info.checkpoint is not None:
            self.channel.saved(self.info.checkpoint)
        self._join()

    def _join(self) -> None:
        """Continue where the others are, if that is later than the client's checkpoint."""
        progress, welcome, self._has_joined = self.channel.progress, self.welcome, True
        if not (self.schedule.is_target or welcome.has_last):  # the coordinator has gone back to before it was sent
            progress.committed = False
        is_behind = welcome.round >= self.schedule.next_round(progress.round) or self.info.checkpoint is None
        if self.config.federation.mode == "async" or is_behind:  # the coordinator may have forgotten the averages
            self.module.references.forget()
        if is_behind and not progress.committed:
            self.module.load(welcome)
            progress.round = min(welcome.round, self.config.train.rounds)
        for figures in self.module.stage.history if self.module.stage else ():
            self.channel.report(figures)

    def _write_results(self) -> None:
        """Predict all samples, report final figures, and write the weights."""
        module = self.module
        uncache_adapter(module)
        # W and C from statistics are at the target alone.
        has_final_model = self.schedule.is_target or not self.schedule.takes_statistics
        self.channel.report((self._final_figures() if has_final_model else {}) | {"final": 1.0})
        weights = {in_file(name): value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
        self.storage.write(ClientFiles(self.info.run, self.info.name).name_of_final, save(weights))

    def _final_figures(self) -> Figures:
        """Predict all samples and return the figures; a majority vote has no network that could be scored."""
        module, samples = self.module, self.module.samples
        models = list(self.channel.progress.source_models.values()) if self.schedule.parts_for_vote else []
        rows = samples.rows
        self.probabilities = majority_vote(module, rows, models) if models else predict(module, rows)
        figures = figures_of(self.probabilities, self.accuracy, samples.select) | samples.held_out_scores(module)
        if self.schedule.is_target and not models:
            figures |= model_scores(module, rows, self.probabilities, MODEL_SCORES)
        return figures


def in_file(name: str) -> str:
    """Return the name of a tensor in final.safetensors."""
    for prefix, written in NAMES_IN_FILES.items():
        if name.startswith(prefix):
            return written + name.removeprefix(prefix)
    return name

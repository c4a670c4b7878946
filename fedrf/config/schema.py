"""The configuration of a run: every key with its meaning, its default and what is allowed.

`load_config` puts it together: defaults, then the method's preset, then the recipe or file, then `section.key=value`
overrides, each over the one before. The result is complete, and is what a run directory keeps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedrf.adaptation.selection import OF_SOURCES
from fedrf.config.participation import WORDS, reaches_nobody
from fedrf.config.presets import FEATURES, OWN, PRESETS

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
HIDDEN = 100  # neurons in each of the two hidden layers of the paper's classifier
WEIGHTS = ("pretrained", "none")  # words for weights that are no file
PER_SAMPLE = ("samples", "moments")  # messages that are made from aligned features, and not from random ones

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(PRESETS)]
# What makes a method the one that it is, besides its losses.
ESSENTIAL = ("data.pooled", "model.normalization", "federation.shows", "federation.encryption")


class Section(BaseModel):
    """Keys that are not named are errors; values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(Section):
    """Which domains take part, and who holds what of them."""

    name: Literal[
        "digits",
        "digit-five",
        "office31",
        "office31-decaf6",
        "office31-surf",
        "office-caltech10",
        "office-caltech10-decaf6",
        "office-caltech10-surf",
        "office-home",
        "domainnet",
        "visda-c",
        "digit-four",
        "folder",
        "features",
    ] = "digits"
    root: str | None = Field(None, description="folder of the data sets; default $FEDRF_DATA of driver or client")
    sources: tuple[str, ...] | None = Field(None, description="labelled domains; default all but the target")
    target: str = Field("handwritten", description="the unlabelled domain")
    classes: tuple[str, ...] | None = Field(
        None, description="folder, features: in order; default those of the sources"
    )
    samples: Annotated[int, Field(ge=2)] | None = Field(
        None, description="at most so many a domain, the same for every seed; default all"
    )
    split: Literal["train", "test", "all"] = Field("train", description="of data sets that come in such parts")
    scale: Literal["none", "standard"] = Field("none", description="features: standard: each column, at each client")
    partition: Literal["none", "even", "dirichlet", "shards", "size"] = Field(
        "none", description="how each source is split over clients; a target among the sources gets a share too"
    )
    clients: Count = Field(1, description="clients for each source, where there is a partition")
    concentration: Positive = Field(0.5, description="dirichlet: small is skewed labels; size: small is unequal sizes")
    shards: Count = Field(2, description="pieces of samples sorted by label that a client gets")
    validation: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of each source that is held out to score with; the scores validation and dev need it"
    )
    pooled: Literal["none", "sources", "all", "oracle"] = Field(
        "none",
        description="not federated, for reference: one client has all sources, the target's samples too, or, as an "
        "oracle, half of the target's with their labels, and the other half is scored",
    )
    allow_partial: bool = Field(False, description="use a data set that is not complete")
    skip_corrupt: bool = Field(False, description="leave out image files that cannot be decoded; decodes all to see")

    @field_validator("root", "target", mode="before")
    @classmethod
    def _numbers_are_names_too(cls, value: Any) -> Any:
        return str(value) if type(value) in (int, float) else value

    @field_validator("sources", "classes", mode="before")
    @classmethod
    def _names_are_a_list_of_texts(cls, value: Any) -> Any:
        value = (value,) if isinstance(value, str | int | float) else value
        # YAML reads 1 as a number, and classes are often called so.
        return tuple(str(one) for one in value) if isinstance(value, (list, tuple)) else value

    @model_validator(mode="after")
    def _fits_together(self) -> DataConfig:
        if self.name != "digits" and "target" not in self.model_fields_set:
            raise ValueError(f"target must name the unlabelled domain of {self.name}; `fedrf data list` has them")
        if self.sources is not None and (not self.sources or len(set(self.sources)) < len(self.sources)):
            raise ValueError("sources must name at least one domain, and none twice")
        if self.sources is not None and self.target in self.sources and self.partition == "none":
            raise ValueError(
                f"target={self.target} is also one of data.sources; only a data.partition can share it out"
            )
        if self.clients > 1 and self.partition == "none":
            raise ValueError(f"clients={self.clients} needs a data.partition: even, dirichlet, shards or size")
        if self.pooled != "none" and self.partition != "none":
            raise ValueError(f"pooled={self.pooled} puts sources together, and data.partition splits them: choose one")
        if self.classes is not None:
            if self.name not in OWN:
                raise ValueError(f"classes are for data.name=folder and features; {self.name} has its own")
            if len(set(self.classes)) < max(2, len(self.classes)):
                raise ValueError("classes must be at least two, and none twice")
        return self


class ModelConfig(Section):
    """Extractor G, random features, aligner W_RF and classifier C."""

    extractor: Literal[
        "gradients",
        "cnn",
        "mlp",
        "identity",
        "efficientnet-lite0",
        "efficientnet-lite0-plus",
        "efficientnet-lite0-small",
        "resnet18",
        "resnet50",
        "resnet101",
    ] = "gradients"
    weights: str = Field("pretrained", description="of a backbone: pretrained, none (random) or a file")
    cache: Literal["disk", "memory", "off"] = Field(
        "disk", description="outputs of a backbone's fixed part: kept for later runs too, for this one, or not at all"
    )
    cache_precision: Literal["float32", "float16"] = Field("float32", description="float16: half the room, rounded")
    sharing: Literal["frozen", "local", "averaged"] = Field("frozen", description="the learnable part of G")
    extractor_interval: Count = Field(10, description="T_G, rounds between averages of G where it is averaged")
    num_features: Count = Field(500, description="N, the number of random frequencies")
    sigma: Positive | Literal["median"] = Field("median", description="σ, the kernel width")
    kernel: Literal["gaussian", "laplace", "cauchy", "none"] = Field(
        "gaussian", description="none: no random features, W acts on those of the extractor"
    )
    dim: Count = Field(64, description="m, the number of aligned components")
    classifier: Literal["linear", "mlp"] = Field("linear", description="mlp: two hidden layers of 100, as in the paper")
    normalization: Literal["none", "batch"] = Field(
        "none", description="batch: aligned features are standardised, by each client with its own statistics"
    )
    scale: Positive = Field(10.0, description="factor of the unit-norm aligned features")

    @field_validator("cache", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        return "off" if value is False else value  # which YAML takes it for


class AlignConfig(Section):
    """What brings the domains together."""

    weight: NotNegative = Field(1.0, description="λ, the weight of L_MMD in the sources' loss")
    gamma: NotNegative = Field(0.005, description="γ of the proximal step and of the warm start")
    message: Literal["exact", "running", "batch", "samples", "moments"] = Field(
        "exact",
        description="what Σℓ is a mean over; or, of aligned features in a batch: each sample's, or mean and variance",
    )
    step: Literal["proximal", "gradient"] = Field("proximal", description="how W moves against the discrepancy")
    memory: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="share of the past in running messages")
    refresh: Count = Field(5, description="rounds between exact messages where the extractor learns")
    warm_start: Literal["none", "statistics", "subspace"] = Field("none", description="W from closed-form RF-TCA")


class TrainConfig(Section):
    """How clients train."""

    rounds: Count = 150
    batch_size: Annotated[int, Field(ge=2)] = 64
    lr: Positive = 3e-3
    optimizer: Literal["adam", "sgd"] = Field("adam", description="sgd: plain, with steps of 100 · lr")
    proximal: NotNegative = Field(0.0, description="μ of FedProx, the pull towards the average that came last")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1


class AdaptConfig(Section):
    """Adaptation at the target, without any communication."""

    when: Literal["last", "joint", "never"] = Field("last", description="after the rounds, or within them")
    steps: Count = 150
    batch_size: Annotated[int, Field(ge=2)] = 256
    lr: Positive = 3e-4
    pseudo_labels: NotNegative = Field(0.3, description="weight of cross-entropy on pseudo-labels")
    views: Literal["all", "aligned"] = Field(
        "all", description="what guesses pseudo-labels: aligned features alone, or extractor and neighbours too"
    )
    renew: Count = Field(60, description="steps between new pseudo-labels")
    consistency: NotNegative = Field(
        0.0, description="weight, in the end, of predicting the same for warped maps; efficientnet-lite0-small"
    )


class FederationConfig(Section):
    """Who exchanges what, and when."""

    mode: Literal["async", "sync"] = Field("async", description="async: nobody waits; sync: same seed, same bits")
    participants: Literal["all", "random"] = Field("all", description="S_t")
    messages: str = Field("same/same/same", description="whose Σℓ/W/C pass; see fedrf.config.participation")
    drop: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="probability that a source's Σℓ, W or C is lost in a round, each on its own"
    )
    classifier_interval: Count | Literal["last", "never"] = Field(
        1, description="T_C, rounds between averages of C; last: one, after the last round"
    )
    aligner_interval: Count = Field(5, description="T_W, rounds between averages of W; one more after the last round")
    together: bool = Field(False, description="W and G are averaged when C is, and not at intervals of their own")
    prediction: Literal["average", "vote"] = Field("average", description="vote: classifiers are sent once, at the end")
    shows: Literal["average", "each"] = Field(
        "average", description="sync: what the target gets; each: the parts of every source, besides their average"
    )
    encryption: Literal["none", "counted"] = Field(
        "none", description="sync: counted: what sources send of samples counts as Paillier ciphertexts"
    )
    aggregation: Literal[
        "mean", "weighted", "chosen", "median", "trimmed", "krum", "geometric-median", "fedasync", "fedbuff"
    ] = Field("mean", description="weighted: by numbers of samples; chosen: by weights that the target sends")
    max_staleness: Count = Field(50, description="async: older messages, in rounds, are not used")
    staleness_exponent: NotNegative = Field(0.5, description="async: a of the weight (1 + τ)^(-a)")
    mixing: Annotated[float, Field(gt=0, le=1)] = Field(0.6, description="α of fedasync")
    buffer: Count = Field(3, description="updates in a full buffer of fedbuff")
    deadline: Positive = Field(120.0, description="sync: seconds before a silent client is left out of a round")
    delays: dict[str, NotNegative] = Field({}, description="seconds that a client is held up each round, to try it out")
    checkpoint_seconds: NotNegative = Field(5.0, description="least time between checkpoints; 0: every round")

    @field_validator("messages")
    @classmethod
    def _three_words(cls, text: str) -> str:
        words = text.split("/")
        if len(words) != 3 or not set(words) <= set(WORDS):
            raise ValueError(f"must be three words for Σℓ/W/C, each one of {', '.join(WORDS)}")
        return text

    @model_validator(mode="after")
    def _fits_mode(self) -> FederationConfig:
        if self.mode == "sync" and self.aggregation in ("fedasync", "fedbuff"):
            raise ValueError(f"aggregation={self.aggregation} is for mode=async")
        if self.aggregation == "chosen" and self.shows == "average":
            raise ValueError("aggregation=chosen needs shows=each: the target weighs what it sees")
        return self


class ResourcesConfig(Section):
    """What Ray reserves for each client."""

    gpus_per_client: NotNegative | Literal["auto"] = Field(
        "auto", description="fractions share a GPU; auto: an equal share of what there is, at most 1"
    )
    cpus_per_client: Positive | Literal["auto"] = Field("auto", description="auto: an equal share, at most 1")
    clients_per_actor: Count = Field(1, description="more: start faster, in threads of one process, and fall together")
    max_restarts: Annotated[int, Field(ge=0)] = Field(3, description="how often a client or a run is started again")
    placement: Literal["pack", "spread", "apart"] = Field(
        "pack", description="of clients on nodes: few nodes, evenly where possible, or every process on its own node"
    )
    nodes: dict[str, str] = Field(
        {}, description="client to node, by a resource that the node offers: ray start --resources='{\"north\": 1}'"
    )
    wait_seconds: NotNegative = Field(0.0, description="for room on a cluster that grows, or that others use")

    @model_validator(mode="after")
    def _one_process_a_node(self) -> ResourcesConfig:
        if self.nodes and self.clients_per_actor > 1:
            raise ValueError(f"nodes needs clients_per_actor=1; got {self.clients_per_actor}")
        return self


class TrackConfig(Section):
    """What is recorded, and where."""

    wandb: Literal["disabled", "offline", "online"] = "disabled"
    project: str = "fedrf"
    group: str | None = Field(None, description="W&B group; default dataset-target")
    tensorboard: bool = Field(False, description="clients also write TensorBoard files through Lightning")
    evaluate_every: Count = Field(10, description="rounds between evaluations at the target, and of scores")
    select: Literal["information", "density", "entropy", "validation", "dev"] = Field(
        "information", description="the score without target labels that chooses; see fedrf.adaptation.scores"
    )


class Config(Section):
    """All of it."""

    method: MethodName = "fedrf-plus"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    align: AlignConfig = AlignConfig()
    train: TrainConfig = TrainConfig()
    adapt: AdaptConfig = AdaptConfig()
    federation: FederationConfig = FederationConfig()
    resources: ResourcesConfig = ResourcesConfig()
    track: TrackConfig = TrackConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        self._check_classifier()
        extractor = self.model.extractor
        if self.data.name in FEATURES and extractor not in ("identity", "mlp"):
            raise ValueError(
                f"model.extractor={extractor} is for images; data.name={self.data.name} needs identity or mlp"
            )
        if extractor in ("cnn", "mlp") and self.model.sharing == "frozen":
            raise ValueError(
                f"model.extractor={extractor} is learned from nothing: set model.sharing to local or averaged"
            )
        if self.model.dim > 2 * self.model.num_features and self.model.kernel != "none":
            raise ValueError(f"model.dim={self.model.dim} must not exceed 2 · model.num_features")
        self._check_alignment()
        self._check_selection()
        return self

    def _check_alignment(self) -> None:
        """Make sure that a method gets the messages that its losses are made for."""
        align, own = self.align, PRESETS[self.method]
        if own.get("federation.mode", self.federation.mode) != self.federation.mode:
            raise ValueError(
                f"federation.mode=async: method={self.method} needs sync, for its clients wait for each other"
            )
        for key in ESSENTIAL:
            section, name = key.split(".")
            needed = own.get(key, _SECTIONS[section].model_fields[name].default)
            if value_of(self, key) != needed:
                raise ValueError(f"{key}={value_of(self, key)}: method={self.method} needs {needed}")
        needed = own.get("align.message")
        if (align.message in PER_SAMPLE or needed in PER_SAMPLE) and align.message != needed:
            allowed = needed if needed in PER_SAMPLE else "exact, running or batch"
            raise ValueError(f"align.message={align.message}: method={self.method} needs {allowed}")
        if align.message in PER_SAMPLE and align.step == "proximal":
            raise ValueError(f"align.message={align.message} has no closed form: set align.step=gradient")
        if self.model.kernel == "none" and align.warm_start != "none":
            raise ValueError(f"align.warm_start={align.warm_start} is for random features; model.kernel=none has none")

    def _check_selection(self) -> None:
        """Make sure that there will be figures to choose by."""
        select, messages = self.track.select, self.federation.messages
        if select in OF_SOURCES and not self.data.validation:
            raise ValueError(
                f"track.select={select} needs samples that sources hold out: set data.validation, say to 0.2"
            )
        if select == "dev" and self.align.message in PER_SAMPLE:
            raise ValueError(f"track.select=dev needs Σℓ of the target; align.message={self.align.message} is none")
        if select == "dev" and reaches_nobody(messages)[0]:
            raise ValueError(f"track.select=dev needs Σℓ of the target; federation.messages={messages} lets none pass")

    def _check_classifier(self) -> None:
        """Make sure that the target gets something to classify with."""
        federation, rounds = self.federation, self.train.rounds
        interval = federation.classifier_interval
        if federation.prediction == "vote":
            if self.adapt.when != "never":
                raise ValueError("federation.prediction=vote has no one classifier to adapt: set adapt.when=never")
        elif interval == "never" or (interval != "last" and interval > rounds and not federation.together):
            raise ValueError(
                f"federation.classifier_interval={interval} with train.rounds={rounds}: the target would never get a "
                "classifier; allowed: at most train.rounds, or federation.prediction=vote"
            )
        elif reaches_nobody(federation.messages)[2]:
            raise ValueError(
                f"federation.messages={federation.messages}: the target would never get a classifier; let C pass, or "
                "set federation.prediction=vote"
            )

    @classmethod
    def describe(cls) -> Iterator[tuple[str, str, str, str]]:
        """Yield every key with its default, what is allowed, and its meaning."""
        for name, field in cls.model_fields.items():
            section = field.annotation
            inner = section.model_fields if name in _SECTIONS and section else {}
            for key, one in inner.items():
                yield f"{name}.{key}", str(one.default), _allowed(one.annotation), one.description or ""
            if not inner:
                yield name, str(field.default), _allowed(field.annotation), field.description or ""

    @property
    def digest(self) -> str:
        """Twelve hex digits of everything that can change the result."""
        # Where a known data set lies does not matter; for others, that is what tells them apart.
        place = set() if self.data.name in OWN else {"root"}
        elsewhere: Any = {"track": True, "resources": True, "data": place, "model": {"cache"}}
        kept = self.model_dump(mode="json", exclude=elsewhere)
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]

    def save(self, path: Path) -> None:
        """Write the whole configuration as YAML."""
        path.write_text(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def value_of(config: Config, key: str) -> Any:
    """Return the value of one key."""
    section, _, name = key.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


_SECTIONS = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def _allowed(annotation: Any) -> str:
    """Write a type for people: the words of a Literal, or the name of the type."""
    options = get_args(annotation)
    if get_origin(annotation) is Literal:
        return " | ".join(options)
    if get_origin(annotation) is Annotated:
        return _allowed(options[0])
    if options and get_origin(annotation) is not tuple:
        return " | ".join(_allowed(option) for option in options if option is not type(None))
    return "list of names" if options else str(getattr(annotation, "__name__", annotation))


def _allowed_keys(path: list[str]) -> list[str]:
    owner = _SECTIONS.get(path[0]) if path else Config
    return list(owner.model_fields) if owner else []

"""The configuration of a run: every key with its meaning, its default and its allowed values."""

from __future__ import annotations

import hashlib
import json
from math import floor
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from fedrf.config.registry import AGGREGATION_RULES, DATASETS, EXTRACTORS, METHODS, SCORES
from fedrf.files import write_atomically

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Senders = Literal["participants", "same", "subset", "all", "ordered", "random", "none"]
HIDDEN = 100  # neurons in each of the two hidden layers of the paper's classifier
WEIGHTS = ("pretrained", "none")  # values of `model.weights` that are not files


class Section(BaseModel):
    """Immutable keys; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(Section):
    """Which domains take part, and which client holds which samples."""

    name: Annotated[str, AfterValidator(DATASETS.check)] = Field("digits", description="see `fedrf datasets`")
    root: str | None = Field(None, description="folder of the data sets; default $FEDRF_DATA of driver or client")
    sources: tuple[str, ...] | None = Field(None, description="labelled domains; default all but the target")
    target: str = Field("handwritten", description="the unlabelled domain")
    classes: tuple[str, ...] | None = Field(
        None, description="folder, features: in order; default those of the sources"
    )
    samples: Annotated[int, Field(ge=2)] | None = Field(
        None, description="largest number of samples of a domain, the same ones for every seed; default all"
    )
    split: Literal["train", "test", "all"] = Field("train", description="for data sets with official splits")
    scale: Literal["none", "standard"] = Field("none", description="features: standardise each column at each client")
    imbalance: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        1.0,
        description="thin the classes of each domain, others in each, until the rarest has 1/imbalance of its samples",
    )
    missing_classes: Annotated[int, Field(ge=0)] = Field(
        0, description="classes that each source lacks, others at each"
    )
    partition: Literal["none", "even", "dirichlet", "shards", "size"] = Field(
        "none", description="how each source is split over clients; a target among the sources gets a share too"
    )
    clients: Count = Field(1, description="clients for each source, with a partition")
    concentration: Positive = Field(0.5, description="dirichlet: small is skewed labels; size: small is unequal sizes")
    shards: Count = Field(2, description="pieces of samples sorted by label that a client gets")
    validation: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of each source that is held out for the scores validation and dev"
    )
    allow_partial: bool = Field(False, description="use a data set that is not complete")
    skip_corrupt: bool = Field(False, description="decode all image files first and leave out corrupt ones")

    @field_validator("root", "target", mode="before")
    @classmethod
    def _numbers_are_names_too(cls, value: Any) -> Any:
        return str(value) if type(value) in (int, float) else value

    @field_validator("sources", "classes", mode="before")
    @classmethod
    def _names_are_a_list_of_texts(cls, value: Any) -> Any:
        value = (value,) if isinstance(value, str | int | float) else value
        # YAML reads the class name 1 as a number.
        return tuple(str(name) for name in value) if isinstance(value, (list, tuple)) else value

    @model_validator(mode="after")
    def _is_consistent(self) -> DataConfig:
        if self.name != "digits" and "target" not in self.model_fields_set:
            raise ValueError(f"target must name the unlabelled domain; `fedrf datasets {self.name}` lists domains")
        if self.sources is not None and (not self.sources or len(set(self.sources)) < len(self.sources)):
            raise ValueError("sources must name at least one domain, and none twice")
        if self.sources is not None and self.target in self.sources and self.partition == "none":
            raise ValueError(f"target={self.target} is also one of data.sources, which needs a data.partition")
        if self.clients > 1 and self.partition == "none":
            raise ValueError(f"clients={self.clients} needs a data.partition: even, dirichlet, shards or size")
        if self.classes is not None:
            if not DATASETS.find(self.name).user_defined:
                raise ValueError(f"classes are for data.name=folder and features; {self.name} has its own")
            if len(set(self.classes)) < max(2, len(self.classes)):
                raise ValueError("classes must be at least two, and none twice")
        return self


class ModelConfig(Section):
    """Extractor G, random features, aligner W_RF and classifier C."""

    extractor: Annotated[str, AfterValidator(EXTRACTORS.check)] = Field("gradients", description="G; see docs/data.md")
    weights: str = Field("pretrained", description="of a backbone: pretrained, none (random) or a file")
    cache: Literal["disk", "memory", "off"] = Field(
        "disk", description="where outputs of a backbone's frozen layers are kept: disk is shared by all runs"
    )
    cache_precision: Literal["float32", "float16"] = Field("float32", description="float16: half the size, rounded")
    sharing: Literal["frozen", "local", "averaged"] = Field("averaged", description="the learnable part of G")
    extractor_interval: Count = Field(
        25, description="T_G, rounds between averages of G where it is averaged; one more after the last round"
    )
    num_features: Count = Field(500, description="N, the number of random frequencies")
    sigma: Positive | Literal["median"] = Field("median", description="σ, the kernel width")
    kernel: Literal["gaussian", "laplace", "cauchy", "none"] = Field(
        "gaussian", description="none: no random features, W maps the features of the extractor"
    )
    dim: Count = Field(64, description="m, the number of aligned components")
    classifier: Literal["linear", "mlp"] = Field("linear", description="mlp: two hidden layers of 100, as in the paper")
    scale: Positive = Field(10.0, description="factor of the unit-norm aligned features")

    @field_validator("cache", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML reads off as false


class AlignConfig(Section):
    """How the domains are aligned."""

    weight: NotNegative = Field(1.0, description="λ, the weight of the discrepancy in the loss")
    gamma: NotNegative = Field(0.005, description="γ of the proximal step, of the warm start and of rf-tca")
    message: Literal["exact", "running", "batch"] = Field(
        "exact", description="samples that Σℓ is a mean over: all, all past batches, or the batch"
    )
    step: Literal["proximal", "gradient"] = Field(
        "proximal", description="how W moves against the discrepancy, in methods that align Σℓ"
    )
    memory: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="share of the past in running messages")
    refresh: Count = Field(5, description="rounds between exact messages where the extractor learns")
    warm_start: Literal["none", "statistics", "subspace"] = Field("none", description="W from closed-form RF-TCA")
    statistics: Literal["none", "means", "gram", "lowrank"] = Field(
        "none",
        description="what each source sends once, after the last round, for W and C in closed form: class means; "
        "second moments too; or their largest components",
    )
    rank: Count = Field(100, description="lowrank: components of the covariance within classes")
    closed_form: Literal["ridge", "rf-tca"] = Field(
        "ridge", description="W and C from statistics: ridge regression, or RF-TCA with γ and m before it"
    )
    source_weights: Literal["distance", "equal"] = Field(
        "distance", description="of sources in the closed form; distance: inverse to that of their Σℓ from the target's"
    )
    ridge: Positive | Literal["auto"] = Field(
        "auto", description="weight of the ridge in the closed form; auto: by leave-one-source-out"
    )


class TrainConfig(Section):
    """How clients train."""

    rounds: Annotated[int, Field(ge=0)] = Field(
        150, description="T, the number of rounds; 0 needs align.statistics, from which W and C follow without training"
    )
    batch_size: Annotated[int, Field(ge=2)] = Field(64, description="samples of a client in a round")
    lr: Positive = Field(3e-3, description="learning rate")
    extractor_lr_factor: Positive = Field(1.0, description="of lr for the learnable part of G; fine-tuning: 0.1")
    optimizer: Literal["adam", "sgd"] = Field("adam", description="sgd: plain, with steps of 100 · lr")
    proximal: NotNegative = Field(0.0, description="μ of FedProx, the penalty on the distance to the last average")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="of the cross-entropy at the sources")
    precision: Literal["32", "tf32", "bf16-mixed", "16-mixed"] = Field(
        "32", description="tf32: on CUDA only; mixed: of the extractor, while everything after it stays in 32 bits"
    )

    @field_validator("precision", mode="before")
    @classmethod
    def _bits_are_a_word(cls, value: Any) -> Any:
        return "32" if value == 32 else value  # YAML reads a number


class AdaptConfig(Section):
    """Adaptation at the target, without communication."""

    when: Literal["last", "joint", "never"] = Field("last", description="after the rounds, or within them")
    steps: Count = Field(150, description="number of steps after the last round")
    batch_size: Annotated[int, Field(ge=2)] = Field(256, description="samples in a step")
    lr: Positive = Field(3e-4, description="learning rate")
    pseudo_labels: NotNegative = Field(0.3, description="weight of cross-entropy on pseudo-labels")
    views: Literal["all", "aligned"] = Field(
        "all", description="features that pseudo-labels come from: aligned ones, or extractor and neighbours too"
    )
    renew: Count = Field(60, description="steps between new pseudo-labels")
    shares: Literal["equal", "estimated"] = Field(
        "equal",
        description="of the target's classes; estimated: from predictions, which are kept if that is unreliable",
    )
    consistency: NotNegative = Field(
        0.0, description="final weight of equal predictions for warped feature maps; efficientnet-lite0-small"
    )


class FederationConfig(Section):
    """Which messages clients exchange, and when."""

    mode: Literal["async", "sync"] = Field(
        "async", description="async: clients do not wait for each other; sync: rounds; same seed, same bits"
    )
    participants: Literal["all", "random"] | Count = Field(
        "all", description="S_t, the sources that take part in a round; a number: so many, and the others skip it"
    )
    embeddings_from: Senders = Field("participants", description="sources whose Σℓ are used; see docs/protocol.md")
    aligners_from: Senders = Field("participants", description="sources whose W are averaged; same: as Σℓ")
    classifiers_from: Senders = Field("participants", description="sources whose C are averaged; same: as W")
    compression: Literal["none", "half", "int8", "int4", "low-rank"] = Field(
        "none", description="of W, C and G, both ways: differences with fewer bits or of low rank, with error feedback"
    )
    drop: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="probability that a source's Σℓ, W, C or statistics are lost, independently in each round"
    )
    classifier_interval: Count | Literal["last", "never"] = Field(
        1, description="T_C, rounds between averages of C; last: one, after the last round"
    )
    aligner_interval: Count = Field(5, description="T_W, rounds between averages of W; one more after the last round")
    together: bool = Field(False, description="average W and G whenever C is averaged, instead of every T_W and T_G")
    prediction: Literal["average", "vote"] = Field(
        "average", description="vote: each source sends its classifier once, at the end, and the majority decides"
    )
    aggregation: Annotated[str, AfterValidator(AGGREGATION_RULES.check)] = Field(
        "consistent",
        description="consistent: mean of the clients that a majority does not contradict; weighted: by numbers of "
        "samples; chosen: by weights that the target sends; fedma: weighted, hidden neurons of C matched first",
    )
    max_staleness: Count = Field(50, description="async: messages that are older, in rounds, are not used")
    staleness_exponent: NotNegative = Field(0.5, description="async: a of the weight (1 + τ)^(-a)")
    mixing: Annotated[float, Field(gt=0, le=1)] = Field(0.6, description="α of fedasync")
    buffer: Count = Field(3, description="updates in a full buffer of fedbuff")
    deadline: Positive = Field(
        120.0,
        description="seconds without a sign of life after which a client is restarted; sync: also seconds that the "
        "others wait in a round for one that is late",
    )
    private_batches: bool = Field(
        False, description="each client draws its batches from a secret, and not from the seed; for real sites"
    )
    delays: dict[str, NotNegative] = Field({}, description="seconds by which a client is delayed each round, for tests")
    checkpoint_seconds: NotNegative = Field(5.0, description="least time between checkpoints; 0: every round")


class ResourcesConfig(Section):
    """What Ray reserves for each client."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="device of clients that have a GPU: auto is cuda, else mps; cpu: none"
    )
    allow_cpu: bool = Field(False, description="compute on the CPU if torch cannot use a GPU that a client should have")
    gpus_per_client: NotNegative | Literal["auto"] = Field(
        "auto", description="fractions share a GPU; auto: 1, or the largest 1/k with which all clients fit on the GPUs"
    )
    cpus_per_client: Positive | Literal["auto"] = Field(
        "auto", description="auto: 1, or the largest share that fits on the nodes"
    )
    clients_per_actor: Count = Field(
        1, description="more: faster start and less memory, in one thread of a process, and they fail together"
    )
    max_restarts: Annotated[int, Field(ge=0)] = Field(
        3, description="how often a client, or all of them, are started again within an hour"
    )
    placement: Literal["pack", "spread", "apart"] = Field(
        "pack", description="of clients on nodes: few nodes, evenly if possible, or every process on its own node"
    )
    nodes: dict[str, str] = Field(
        {}, description="client to node, by a custom resource of the node: ray start --resources='{\"north\": 1}'"
    )
    wait_seconds: NotNegative = Field(0.0, description="time to wait for free resources on a shared or growing cluster")

    @model_validator(mode="after")
    def _one_process_a_node(self) -> ResourcesConfig:
        if self.nodes and self.clients_per_actor > 1:
            raise ValueError(f"nodes needs clients_per_actor=1; got {self.clients_per_actor}")
        return self

    @model_validator(mode="after")
    def _one_gpu_a_process(self) -> ResourcesConfig:
        gpus, clients = self.gpus_per_client, self.clients_per_actor
        if gpus != "auto" and gpus * clients > 1 + 1e-9:
            raise ValueError(
                f"gpus_per_client={gpus:g} with clients_per_actor={clients} is {gpus * clients:g} GPUs for a process, "
                f"which uses one: allowed is at most {floor(1000 / clients) / 1000:g}"
            )
        return self


def _check_storage(url: str) -> str:
    if url and "://" not in url:
        raise ValueError("must be a URL such as s3://bucket/runs, gs://bucket/runs or file:///mnt/runs")
    return url if url.endswith("://") or url == "file:///" else url.rstrip("/")


class SimulationConfig(Section):
    """Speeds and networks of clients whose time is simulated (docs/virtual-time.md)."""

    enabled: bool = Field(False, description="run in simulated time, in one process; the same as --simulate")
    seconds: NotNegative = Field(
        1.0, description="computing time of a round or step of adaptation, median over clients"
    )
    spread: NotNegative = Field(0.0, description="of computing times over clients: σ of a lognormal distribution")
    jitter: NotNegative = Field(0.0, description="of computing times over the rounds of a client: σ, lognormal")
    slow_share: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="share of the sources that are slow")
    slow_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        10.0, description="by which slow sources compute slower"
    )
    latency: NotNegative = Field(
        0.05, description="seconds that a message takes besides its bytes, median over clients"
    )
    upload: Positive = Field(100.0, description="Mbit/s to the coordinator, median over clients")
    download: Positive = Field(100.0, description="Mbit/s from the coordinator, median over clients")
    network_spread: NotNegative = Field(0.0, description="of latency and both rates over clients: σ, lognormal")
    availability: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="share of the time in which it is online"
    )
    cycle: Positive = Field(3600.0, description="mean seconds from one interruption of a client to the next")


class TrackConfig(Section):
    """What is recorded, and where."""

    wandb: Literal["disabled", "offline", "online"] = Field("disabled", description="Weights & Biases")
    project: str = Field("fedrf", description="W&B project")
    group: str | None = Field(None, description="W&B group; default dataset-target")
    storage: Annotated[str, AfterValidator(_check_storage)] = Field(
        "", description="URL of a folder for checkpoints, weights and predictions, such as s3://bucket/runs"
    )
    tensorboard: bool = Field(False, description="clients also write TensorBoard files through Lightning")
    evaluate_every: Count = Field(10, description="rounds between evaluations at the target, and of scores")
    select: Annotated[str, AfterValidator(SCORES.check)] = Field(
        "information", description="the score without target labels that selects an evaluation"
    )


class Config(Section):
    """All keys of a run."""

    method: Annotated[str, AfterValidator(METHODS.check)] = Field("fedrf-oneshot", description="see `fedrf methods`")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(0, description="of everything random")
    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    align: AlignConfig = Field(default_factory=AlignConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)
    adapt: AdaptConfig = Field(default_factory=AdaptConfig)
    federation: FederationConfig = Field(default_factory=FederationConfig)
    resources: ResourcesConfig = Field(default_factory=ResourcesConfig)
    simulation: SimulationConfig = Field(default_factory=SimulationConfig)
    track: TrackConfig = Field(default_factory=TrackConfig)

    @model_validator(mode="after")
    def _is_consistent(self) -> Config:
        from fedrf.config.checks import check_consistency

        check_consistency(self)
        return self

    @property
    def has_fixed_order(self) -> bool:
        """Whether the seed determines the order of messages and the batches."""
        is_ordered = self.federation.mode == "sync" or self.simulation.enabled
        return is_ordered and not self.federation.private_batches

    @property
    def digest(self) -> str:
        """Twelve hex digits of everything that can change the result."""
        # The folder of a known data set does not change the result; data of the user are told apart by it.
        ignored = set() if DATASETS.find(self.data.name).user_defined else {"root"}
        excluded: Any = {"track": True, "resources": True, "data": ignored, "model": {"cache"}}
        if not self.simulation.enabled:
            excluded["simulation"] = True
        kept = self.model_dump(mode="json", exclude=excluded)
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]

    def save(self, path: Path) -> None:
        """Write the whole configuration as YAML."""
        text = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_atomically(path, lambda temporary: temporary.write_text(text))


SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}

"""Which values of different sections can be combined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrf.config.participation import is_empty, senders
from fedrf.config.registry import AGGREGATION_RULES, DATASETS, EXTRACTORS, METHODS, SCORES

if TYPE_CHECKING:
    from fedrf.config.schema import Config

IN_SAMPLE = ("participants", "same", "subset", "none")  # senders that are a part of S_t


def check_consistency(config: Config) -> None:
    """Raise a `ValueError` that names the key, the value and what is allowed."""
    check_classifier(config)
    check_model(config)
    check_method(config)
    check_participants(config)
    check_aggregation(config)
    check_statistics(config)
    check_selection(config)


def check_classifier(config: Config) -> None:
    """Check that the target receives a classifier."""
    federation, rounds = config.federation, config.train.rounds
    interval = federation.classifier_interval
    if config.align.statistics != "none":
        return
    if rounds == 0:
        raise ValueError("train.rounds=0 needs W and C in closed form: set align.statistics to means, gram or lowrank")
    if federation.prediction == "vote":
        if config.adapt.when != "never":
            raise ValueError("federation.prediction=vote has no single classifier to adapt: set adapt.when=never")
    elif interval == "never" or (interval != "last" and interval > rounds and not federation.together):
        raise ValueError(
            f"federation.classifier_interval={interval} with train.rounds={rounds}: the target would never get a "
            "classifier; allowed: at most train.rounds, or federation.prediction=vote"
        )
    elif is_empty(federation).classifier:
        raise ValueError(
            f"federation.classifiers_from={federation.classifiers_from}: the target would never get a classifier; "
            "name sources whose C is averaged, or set federation.prediction=vote"
        )


def check_model(config: Config) -> None:
    """Check that the extractor fits the data, and the aligner the random features."""
    model, dataset = config.model, DATASETS.find(config.data.name)
    extractor = EXTRACTORS.find(model.extractor)
    if dataset.content == "features" and not extractor.takes_features:
        allowed = " or ".join(name for name in EXTRACTORS.built_in if EXTRACTORS.find(name).takes_features)
        raise ValueError(
            f"model.extractor={model.extractor} is for images; data.name={config.data.name} needs {allowed}"
        )
    if extractor.is_learned and config.train.rounds == 0:
        raise ValueError(
            f"model.extractor={model.extractor} has random initial weights, which train.rounds=0 does not train: "
            "choose a method that trains in rounds (`fedrf methods`), or a pretrained extractor"
        )
    if extractor.is_learned and model.sharing == "frozen":
        raise ValueError(
            f"model.extractor={model.extractor} has random initial weights: set model.sharing to local or averaged"
        )
    if model.dim > 2 * model.num_features and model.kernel != "none":
        raise ValueError(f"model.dim={model.dim} must not exceed 2 · model.num_features")
    if model.kernel == "none" and config.align.warm_start != "none":
        raise ValueError(
            f"align.warm_start={config.align.warm_start} is for random features; model.kernel=none has none"
        )


def check_method(config: Config) -> None:
    """Check what the method requires."""
    method, name = METHODS.find(config.method), config.method
    if not method.asynchronous and config.federation.mode == "async":
        raise ValueError(f"federation.mode=async: method={name} needs sync, because its clients wait for each other")
    if method.pooling != "none" and config.data.partition != "none":
        raise ValueError(
            f"data.partition={config.data.partition} splits sources, and method={name} pools them: allowed: none"
        )


def check_participants(config: Config) -> None:
    """Check that a sample of the sources in each round can be used with the other keys."""
    federation = config.federation
    if not isinstance(federation.participants, int):
        return
    number = f"federation.participants={federation.participants}"
    if federation.mode != "sync":
        raise ValueError(f"{number}: a sample of the sources in each round needs federation.mode=sync")
    keys = ("embeddings_from", "aligners_from", "classifiers_from")
    for key, value in zip(keys, senders(federation), strict=True):
        if value not in IN_SAMPLE:
            raise ValueError(
                f"{number}: sources outside the sample send nothing, and federation.{key}={value} uses them; "
                f"allowed: {', '.join(IN_SAMPLE)}"
            )


def check_aggregation(config: Config) -> None:
    """Check that the aggregation rule can be used in this mode, with this method and with this classifier."""
    federation = config.federation
    rule = AGGREGATION_RULES.find(federation.aggregation)
    if rule.asynchronous and federation.mode == "sync":
        raise ValueError(f"federation.aggregation={federation.aggregation} is for federation.mode=async")
    if rule.weights == "chosen" and not METHODS.find(config.method).weighs_sources:
        raise ValueError(
            f"federation.aggregation={federation.aggregation} needs a method that weighs sources; "
            f"method={config.method} does not"
        )
    if rule.matches_neurons and config.model.classifier == "linear":
        raise ValueError(
            f"federation.aggregation={federation.aggregation} matches hidden neurons, and "
            f"model.classifier={config.model.classifier} has none: allowed: mlp"
        )


def check_statistics(config: Config) -> None:
    """Check that the closed form for W and C fits method, classifier and prediction."""
    form = f"align.statistics={config.align.statistics}"
    if config.align.statistics == "none":
        return
    if not METHODS.find(config.method).takes_statistics:
        allowed = ", ".join(name for name in METHODS.built_in if METHODS.find(name).takes_statistics)
        raise ValueError(
            f"{form} is for methods that match mean embeddings ({allowed}); method={config.method} does not"
        )
    if config.model.classifier != "linear":
        raise ValueError(f"{form} needs model.classifier=linear; got {config.model.classifier}")
    if config.federation.prediction == "vote":
        raise ValueError(f"{form} gives one classifier: federation.prediction=vote needs one of each source")
    if config.adapt.when == "joint":
        raise ValueError(f"{form} gives W and C after the rounds: adapt.when=joint adapts within them")


def check_selection(config: Config) -> None:
    """Check that the score by which evaluations are selected will be computed."""
    select = config.track.select
    if SCORES.find(select).by_sources and not config.data.validation:
        raise ValueError(f"track.select={select} needs samples that sources hold out: set data.validation, say to 0.2")
    if SCORES.find(select).by_sources and config.align.statistics != "none":
        raise ValueError(
            f"track.select={select} is computed by sources, and align.statistics={config.align.statistics} gives W and "
            "C to the target alone: name a score that the target computes"
        )
    if not SCORES.find(select).needs_embedding:
        return
    if METHODS.find(config.method).message.kind != "mean_embedding":
        raise ValueError(f"track.select={select} needs Σℓ of the target; method={config.method} does not send it")
    if is_empty(config.federation).mean_embedding:
        raise ValueError(
            f"track.select={select} needs Σℓ of the target; "
            f"federation.embeddings_from={config.federation.embeddings_from} sends none"
        )

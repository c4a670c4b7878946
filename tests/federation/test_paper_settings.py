"""The settings of the paper's tables: what is sent, to the byte."""

import pytest

from fedrf.config.loader import load_config
from fedrf.data.domains import clients_of
from tests.federation.recording import SYNC, run_recorded
from tests.federation.reference import participants


def senders(embeddings, aligners, classifiers):
    return {
        "federation.embeddings_from": embeddings,
        "federation.aligners_from": aligners,
        "federation.classifiers_from": classifiers,
    }


RANDOM = {"federation.participants": "random"}
VOTE = {"federation.prediction": "vote"}
SETTINGS = {
    "I": {},
    "II": RANDOM,
    "III": {**RANDOM, "federation.classifier_interval": 3},
    "table III (II)": {**RANDOM, **senders("same", "same", "subset")},
    "table III (III)": {**RANDOM, **senders("same", "subset", "subset")},
    "IV": {**VOTE, "federation.classifier_interval": "never"},
    "V, E": {**VOTE, **senders("random", "random", "none")},
    "A": {**VOTE, **senders("all", "all", "none")},
    "B": {**VOTE, **senders("ordered", "same", "none")},
    "C": {**VOTE, **senders("ordered", "random", "none")},
    "D": {**VOTE, **senders("random", "same", "none")},
    "without Σℓ": senders("none", "participants", "same"),
    "T_C = T": {"federation.classifier_interval": 6},
    "lost messages": {"federation.drop": 0.5, **senders("same", "same", "subset")},
}
CASES = [("fedrf-tca", name) for name in SETTINGS]
CASES += [("fedrf-plus", name) for name in ("I", "table III (III)", "V, E", "without Σℓ", "lost messages")]


@pytest.mark.parametrize(("method", "setting"), CASES)
def test_settings_of_the_paper_send_what_they_say(tmp_path, method, setting):
    overrides = {**SYNC, "method": method, "adapt.when": "never", **SETTINGS[setting]}
    overrides |= {"model.sharing": "frozen"} if method == "fedrf-plus" else {}
    config = load_config(None, overrides)
    result, _ = run_recorded(overrides, tmp_path / "run")
    sources, _ = clients_of(config)
    federation, rounds, embedding = config.federation, config.train.rounds, 4 * 60
    sets = {number: participants(sources, config, number) for number in range(1, rounds + 1)}
    aligner_rounds = {rounds, *range(federation.aligner_interval, rounds, federation.aligner_interval)}
    classifier = 4 * (8 * 10 + 10 if method == "fedrf-plus" else 8 * 100 + 100 + 100 * 101 + 100 * 10 + 10)
    votes, interval = federation.prediction == "vote", federation.classifier_interval
    classifier_rounds = [] if votes else [number for number in sets if number % interval == 0]
    target_trains = method == "fedrf-tca" and setting != "without Σℓ"
    times = [sum(name in chosen[0] for chosen in sets.values()) for name in sources]
    times.append(sum(bool(chosen[0]) for chosen in sets.values()))  # of the target
    # Σℓ of all samples of a frozen extractor is sent once, and then the round in which it was.
    repeated = 8 if method == "fedrf-plus" else embedding
    expected = {
        "mean_embedding": sum(embedding + repeated * (number - 1) for number in times if number),
        "aligner": 8 * embedding * sum(len(sets[number][1]) + target_trains for number in aligner_rounds),
        "classifier": classifier
        * (len(sources) if votes else sum(len(sets[number][2]) for number in classifier_rounds)),
    }
    up = result.summary["communication"]["by_direction"]["up"]
    assert {kind: up.get(kind, 0) for kind in expected} == expected
    assert result.finished
    assert 0 <= result.target_accuracy <= 1

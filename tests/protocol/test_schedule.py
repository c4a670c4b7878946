"""Which messages a client sends in which round."""

import pytest

from fedrf.config.loader import load_config
from fedrf.protocol.schedule import Schedule


def schedule(name="a", **overrides):
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    config = load_config(None, {"method": "fedrf-plus", **keys})
    return Schedule(config, name, ("a", "b", "c"), "t")


def test_sources_send_the_parts_that_they_train_and_the_target_its_embedding():
    assert schedule().parts_after(5) == ("aligner", "classifier")
    assert schedule().parts_after(25) == ("aligner", "classifier", "extractor")
    assert schedule("t").parts_after(5) == ()
    assert schedule("t").sends_embedding(1)


def test_nothing_is_sent_before_the_first_step():
    assert schedule().parts_after(0) == ()


def test_a_target_that_trains_sends_its_aligner_and_never_a_classifier():
    assert schedule("t", method="fedrf-tca").parts_after(1) == ("aligner", "extractor")
    assert schedule("t", method="fedrf-tca", model__sharing="local").parts_after(1) == ("aligner",)
    assert schedule("t", adapt__when="joint").parts_after(5) == ("aligner",)


@pytest.mark.parametrize("interval", [1, 4, 200])
def test_aligners_are_sent_at_their_interval_and_after_the_last_round(interval):
    client = schedule(federation__aligner_interval=interval, train__rounds=150)
    sent = [t for t in range(1, 151) if "aligner" in client.parts_after(t)]
    assert sent == sorted({*range(interval, 151, interval), 150})


@pytest.mark.parametrize("interval", [1, 7, 150])
def test_classifiers_are_sent_at_their_interval(interval):
    sent = [
        t for t in range(1, 151) if "classifier" in schedule(federation__classifier_interval=interval).parts_after(t)
    ]
    assert sent == list(range(interval, 151, interval))


@pytest.mark.parametrize("interval", [1, 4, 200])
def test_extractors_are_sent_at_their_interval_and_after_the_last_round_if_they_are_averaged(interval):
    client = schedule(model__extractor_interval=interval, train__rounds=150)
    expected = sorted({*range(interval, 151, interval), 150})
    assert [t for t in range(1, 151) if "extractor" in client.parts_after(t)] == expected
    assert [t for t in range(1, 151) if client.averages_extractor(t)] == expected
    assert not any("extractor" in schedule(model__sharing="local").parts_after(t) for t in range(1, 151))


def test_the_target_sends_nothing_if_no_source_takes_part():
    client = schedule("t", federation__participants="random")
    for number in range(1, 50):
        assert client.sends_embedding(number) == bool(client.participants(number).mean_embedding)


def test_parts_for_a_majority_vote():
    vote = {"federation__prediction": "vote", "adapt__when": "never"}
    assert schedule().parts_for_vote == ()
    assert schedule(**vote).parts_for_vote == ("classifier",)
    assert schedule(method="source-only").parts_for_vote == ("classifier", "aligner")
    assert schedule(method="source-only", model__sharing="local").parts_for_vote == (
        "classifier",
        "aligner",
        "extractor",
    )
    assert not any("classifier" in schedule(**vote).parts_after(t) for t in range(1, 9))

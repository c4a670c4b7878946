"""Configurations: the order of their layers, and one clear line for every mistake."""

import pytest
import yaml

from fedrf.config.keys import describe_keys, value_of
from fedrf.config.loader import load_config, recipes
from fedrf.config.registry import DATASETS, METHODS
from fedrf.config.schema import Config


def test_the_default_is_one_message_of_each_source():
    config = load_config()
    assert (config.method, config.federation.mode, config.train.rounds) == ("fedrf-oneshot", "async", 0)
    assert (config.model.sharing, config.align.statistics, config.align.rank) == ("frozen", "lowrank", 100)


def test_settings_of_fedrf_plus_are_the_other_defaults():
    config = load_config(None, ["method=fedrf-plus"])
    assert (config.align.message, config.train.rounds, config.align.statistics) == ("exact", 150, "none")
    assert (config.align.step, config.train.label_smoothing) == ("proximal", 0)
    assert (config.model.sharing, config.model.extractor_interval) == ("averaged", 25)


def test_fedrf_tca_has_the_settings_of_the_paper():
    config = load_config(None, ["method=fedrf-tca"])
    assert (config.align.message, config.align.step) == ("batch", "gradient")
    # As the authors' program: extractors are shared. The text has local ones.
    assert (config.model.sharing, config.model.extractor_interval) == ("averaged", 1)
    assert config.model.classifier == "mlp"
    assert config.adapt.when == "never"


def test_overrides_replace_the_file_and_the_file_replaces_settings_of_the_method(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("method: fedrf-tca\nalign: {message: running, weight: 2}\ntrain: {rounds: 7}\n")
    config = load_config(file, ["train.rounds=9"])
    assert (config.align.message, config.align.weight, config.align.step) == ("running", 2.0, "gradient")
    assert config.train.rounds == 9


def test_a_saved_configuration_is_complete_and_loads_unchanged(tmp_path):
    config = load_config(None, {"method": "fedavg", "data.sources": ["street"], "federation.delays": {"street": 1}})
    config.save(tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config
    saved = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert saved.keys() == set(Config.model_fields)


def test_the_digest_depends_on_what_changes_results_and_nothing_else():
    assert load_config().digest == load_config(None, ["track.wandb=offline", "resources.max_restarts=1"]).digest
    assert load_config().digest != load_config(None, ["train.lr=0.1"]).digest


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_has_valid_settings(name):
    config, method = load_config(None, {"method": name}), METHODS.find(name)
    assert (config.method, method.name) == (name, name)
    assert all(value_of(config, key) == value for key, value in method.settings.items())


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_loads(name):
    assert load_config(name).data.name


def test_every_key_is_described():
    keys = {key.name for key in describe_keys()}
    assert {"method", "seed", "align.gamma", "federation.classifier_interval"} <= keys
    assert ("federation.mode", "async", "async | sync") in {row[:3] for row in describe_keys()}


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "train.roundz=3",
            "train.roundz=3: unknown key; allowed: rounds, batch_size, lr, extractor_lr_factor, optimizer",
        ),
        ("colour=red", "colour='red': unknown key; allowed: method, seed"),
        ("method=magic", "method=magic: allowed: fedrf-oneshot, fedrf-plus, fedrf-tca, source-only"),
        ("model.sigma=-1", "model.sigma=-1: Input should be greater than 0 or Input should be 'median'"),
        ("train.lr=.nan", "train.lr=nan: Input should be"),
        ("train=5", "train=5: is a section, with keys of its own"),
        (
            "federation.embeddings_from=some",
            "federation.embeddings_from='some': Input should be 'participants', 'same', 'subset', 'all', 'ordered'",
        ),
        ("federation.aligners_from=some", "federation.aligners_from='some': Input should be 'participants', 'same'"),
        ("federation.classifiers_from=[all]", "federation.classifiers_from=['all']: Input should be 'participants'"),
        ("federation.classifier_interval=never", "the target would never get a classifier"),
        ("federation.classifier_interval=100000", "the target would never get a classifier"),
        ("federation.prediction=vote", "set adapt.when=never"),
        (
            "federation.classifiers_from=none",
            "federation.classifiers_from=none: the target would never get a classifier; name sources whose C is",
        ),
        ("method=[a]", "method=[a]: allowed: fedrf-oneshot, "),
        ("data.samples=1", "data.samples=1: Input should be greater than or equal to 2"),
        ("model.dim=100000", "model.dim=100000 must not exceed"),
        ("data.sources=[street, street]", "none twice"),
        ("data.sources=[handwritten]", "is also one of data.sources"),
        ("federation.drop=1", "federation.drop=1: Input should be less than 1"),
        ("data.validation=1", "data.validation=1: Input should be less than 1"),
        ("track.select=validation", "track.select=validation needs samples that sources hold out: set data.validation"),
        ("track.select=luck", "track.select='luck': allowed: information, density, entropy, bnm, classami, mixval"),
        ("train.rounds", "an override is section.key=value; got 'train.rounds'"),
        ("=3", "an override is section.key=value"),
        ("seed.x=3", "seed"),
    ],
)
def test_one_line_names_key_value_and_what_is_allowed(override, complaint):
    with pytest.raises(ValueError, match=r".") as error:
        load_config(None, ["method=fedrf-plus", override])
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("frozen", ["model.sharing=frozen", "method=source-only"])
def test_random_layers_are_not_frozen(frozen):
    with pytest.raises(ValueError, match=r"extractor=cnn has random initial weights: set model\.sharing to local or"):
        load_config(None, ["method=fedrf-plus", "model.extractor=cnn", frozen])
    assert load_config(None, ["method=fedrf-plus", "model.extractor=cnn"]).model.sharing == "averaged"


def test_random_layers_need_rounds():
    with pytest.raises(ValueError, match=r"which train.rounds=0 does not train: choose a method that trains in rounds"):
        load_config(None, ["model.extractor=cnn"])


def test_one_source_needs_no_brackets():
    assert load_config(None, ["data.sources=street"]).data.sources == ("street",)


@pytest.mark.parametrize("when", ["joint", "last"])
def test_a_vote_cannot_be_combined_with_adaptation(when):
    with pytest.raises(ValueError, match=r"set adapt\.when=never"):
        load_config(None, ["method=source-only", f"adapt.when={when}"])


@pytest.mark.parametrize("rest", [("same", "same"), ("subset", "same"), ("same", "subset")])
def test_classifiers_from_the_same_sources_as_no_embeddings_are_none(rest):
    keys = ["method=fedrf-plus", "federation.embeddings_from=none", f"federation.aligners_from={rest[0]}"]
    with pytest.raises(
        ValueError, match=rf"classifiers_from={rest[1]}: the target would never get a classifier; name sources whose C"
    ):
        load_config(None, [*keys, f"federation.classifiers_from={rest[1]}"])
    assert load_config(None, [*keys, "federation.classifiers_from=participants"])


def test_buffers_need_async_mode():
    with pytest.raises(ValueError, match=r"^federation\.aggregation=fedbuff is for federation\.mode=async$"):
        load_config(None, ["federation.mode=sync", "federation.aggregation=fedbuff"])


def test_weights_of_the_target_need_a_method_that_sends_them():
    with pytest.raises(
        ValueError, match="aggregation=chosen needs a method that weighs sources; method=fedrf-plus does not"
    ):
        load_config(None, ["method=fedrf-plus", "federation.aggregation=chosen"])


def test_a_rule_that_matches_neurons_needs_hidden_layers():
    message = (
        r"^federation\.aggregation=fedma matches hidden neurons, and model\.classifier=linear has none: allowed: mlp$"
    )
    with pytest.raises(ValueError, match=message):
        load_config(None, ["method=fedrf-plus", "federation.aggregation=fedma"])
    load_config(None, ["method=fedrf-plus", "federation.aggregation=fedma", "model.classifier=mlp"])


def test_density_ratios_need_the_mean_embedding_of_the_target():
    held_out = ["method=fedrf-plus", "track.select=dev", "data.validation=0.2"]
    assert load_config(None, held_out).digest == load_config(None, [held_out[0], "data.validation=0.2"]).digest
    with pytest.raises(ValueError, match=r"track\.select=dev needs Σℓ of the target; federation\.embeddings_from=none"):
        load_config(None, [*held_out, "federation.embeddings_from=none", "federation.classifiers_from=same"])
    with pytest.raises(ValueError, match=r"track\.select=dev needs Σℓ of the target; method=f-dan does not send it"):
        load_config(None, [*held_out, "method=f-dan"])


def test_sources_without_the_final_model_compute_no_score_that_selects():
    with pytest.raises(
        ValueError, match=r"track\.select=validation is computed by sources, and align\.statistics=lowrank"
    ):
        load_config(None, ["track.select=validation", "data.validation=0.2"])


def test_files_without_a_configuration(tmp_path):
    with pytest.raises(ValueError, match=r"^'nowhere' is neither a recipe nor a \.yaml file; recipes: digit-five"):
        load_config("nowhere")
    with pytest.raises(ValueError, match="there is no file"):
        load_config(tmp_path / "missing.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(ValueError, match="is not YAML"):
        load_config(broken)
    broken.write_text("- 1")
    with pytest.raises(ValueError, match="must hold sections"):
        load_config(broken)


@pytest.mark.parametrize("name", ["2024", "01", "1.50", "12:30", "null", "true", "no", "1e3", "a b"])
def test_names_of_domains_and_classes_stay_texts(name):
    data = load_config(None, [f"data.target={name}", f"data.sources=[{name}x, {name}]", "data.partition=even"]).data
    assert (data.target, data.sources) == (name, (f"{name}x", name))
    assert load_config(None, ["data.name=features", "data.target=t", f"data.classes=[{name}, 7]"]).data.classes == (
        name,
        "7",
    )


def test_paths_are_not_parsed():
    config = load_config(None, ["data.root=/data/sp ace #1: new", "model.weights=2024"])
    assert (config.data.root, config.model.weights) == ("/data/sp ace #1: new", "2024")
    assert load_config(None, ["data.sources=null", "data.root="]).data.sources is None
    assert load_config(None, ["model.cache=off"]).model.cache == "off"


def test_the_extractor_suits_the_data_unless_it_is_set():
    def extractor(*overrides):
        return load_config(None, ["data.target=t", *overrides]).model.extractor

    assert extractor() == "gradients"
    assert extractor("data.name=features") == "identity"
    assert extractor("data.name=folder") == "efficientnet-lite0-plus"
    assert extractor("data.name=digit-five") == "efficientnet-lite0-small"
    assert extractor("data.name=folder", "model.extractor=resnet18") == "resnet18"
    with pytest.raises(
        ValueError, match=r"model\.extractor=gradients is for images; data\.name=features needs mlp or identity$"
    ):
        extractor("data.name=features", "model.extractor=gradients")


def test_digits_from_files_are_warped_unless_method_or_user_set_it_otherwise():
    def consistency(*overrides):
        return load_config("digit-four", list(overrides)).adapt.consistency

    assert consistency() == 1
    assert consistency("method=fedrf-tca") == 0
    assert consistency("adapt.consistency=0.5") == 0.5
    assert load_config("digits", []).adapt.consistency == 0


def test_every_data_set_but_the_digits_sets_its_extractor():
    assert [name for name, dataset in DATASETS.items() if "model.extractor" not in dataset.settings] == ["digits"]


RETIRED = {
    "federation.messages": "federation.embeddings_from, federation.aligners_from and federation.classifiers_from",
    "data.pooled": "an attribute of the method, which cannot be set",
    "model.normalization": "an attribute of the method, which cannot be set",
    "federation.shows": "an attribute of the method, which cannot be set",
    "federation.encryption": "an attribute of the method, which cannot be set",
}


@pytest.mark.parametrize(("key", "replacement"), RETIRED.items())
def test_a_key_of_an_earlier_version_gives_one_line_with_its_replacement(key, replacement):
    with pytest.raises(ValueError, match="no longer") as error:
        load_config(None, [f"{key}=same/same/same"])
    assert str(error.value) == f"{key}='same/same/same': is no longer a key; now: {replacement}"

import pytest

from fedrf.config import load_config
from fedrf.data import digits
from fedrf.data.domains import DOMAINS, NUM_CLASSES, load_domain, resolve_domains


def test_the_names_that_the_driver_knows_are_those_that_exist():
    assert DOMAINS["digits"] == digits.DOMAINS
    assert NUM_CLASSES["digits"] == digits.NUM_CLASSES


def test_sources_default_to_all_but_the_target():
    data = load_config(None, ["data.target=street"]).data
    assert resolve_domains(data) == (("handwritten", "rendered", "textured"), "street")


def test_unknown_domains_are_named():
    with pytest.raises(ValueError, match=r"data\.sources='moon': the domains of digits are handwritten"):
        resolve_domains(load_config(None, ["data.sources=[moon]"]).data)


def test_samples_are_limited():
    domain = load_domain(load_config(None, ["data.samples=50"]).data, "street")
    assert len(domain.inputs) == len(domain.labels) == 50

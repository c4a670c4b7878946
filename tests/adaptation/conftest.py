import pytest

from fedrf.data.datasets.digits import Digits
from tests.methods.conftest import without_reports

__all__ = ["without_reports"]


@pytest.fixture(scope="package", autouse=True)
def digits_drawn_once():
    """Draw each domain of the digits once, and not in every run."""
    draw, drawn = Digits.load, {}

    def load(self, config, domain):
        if domain not in drawn:
            drawn[domain] = draw(self, config, domain)
        return drawn[domain]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "load", load)
        yield

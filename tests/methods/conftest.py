import pytest


@pytest.fixture(scope="package", autouse=True)
def without_reports():
    """Do not draw report.html: that takes longer than such a small run, and tests/experiment checks it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedrf.experiment.report.write_report", lambda runs, out: None)
        yield

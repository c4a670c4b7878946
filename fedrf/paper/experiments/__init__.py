"""All tables and figures, in the order of the paper."""

from __future__ import annotations

from fedrf.paper.experiments import ablation, accuracy, alignment, communication, robustness, theorem
from fedrf.paper.plan import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        theorem.THEOREM1,
        communication.TABLE1,
        alignment.FIG3_OFFICE_CALTECH,
        alignment.FIG3_OFFICE31,
        communication.TABLE2,
        robustness.TABLE3,
        robustness.FIG4,
        accuracy.TABLE4,
        accuracy.TABLE5,
        accuracy.TABLE6,
        accuracy.TABLE7,
        ablation.TABLE8,
        ablation.TABLE9,
        ablation.FIG5,
        alignment.FIG6,
        alignment.KERNELS_OFFICE_CALTECH,
        alignment.KERNELS_OFFICE31,
        robustness.FIG7,
        robustness.VOTING_OFFICE_CALTECH,
        robustness.VOTING_DIGIT_FIVE,
        robustness.ORDERS,
    )
}


def find(name: str) -> Experiment:
    """Return an experiment by its name or a beginning of it that no other has; a `ValueError` lists all names."""
    matches = [known for known in EXPERIMENTS if known == name] or [
        known for known in EXPERIMENTS if name and known.startswith(name)
    ]
    if len(matches) == 1:
        return EXPERIMENTS[matches[0]]
    what = f"is the beginning of {', '.join(matches)}" if matches else "is no table or figure of the paper"
    raise ValueError(f"{name!r} {what}; allowed: all, {', '.join(EXPERIMENTS)}")

"""Run experiments of the paper and write their tables, figures and the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedrf.files import locked, write_atomically
from fedrf.paper.experiments import EXPERIMENTS
from fedrf.paper.figures import write_figure
from fedrf.paper.jobs import JobStore
from fedrf.paper.outcome import Outcome, collect
from fedrf.paper.page import write_page
from fedrf.paper.plan import Job, Plan
from fedrf.paper.rendering import as_markdown
from fedrf.paper.runner import run_jobs
from fedrf.paper.setting import Setting


def reproduce(
    plans: Mapping[str, Plan], setting: Setting, folder: Path, processes: int, address: str | None = None
) -> tuple[list[Outcome], bool]:
    """Run all jobs that are not finished; return the outcomes, and False if it was interrupted.

    Experiments share jobs. An experiment's files are written as soon as its last job is finished; those of the others
    at the end, also after an interruption.

    Parameters
    ----------
    plans
        The plan of each experiment, by its name.
    """
    jobs, titles = _jobs(plans)
    store, outcomes = JobStore(folder / "runs"), dict[str, Outcome]()
    unfinished = {
        name: {cell.job.digest for cell in plan.cells if store.result(cell.job) is None} for name, plan in plans.items()
    }

    def write_if_complete(ended: Job) -> None:
        for name, digests in unfinished.items():
            if ended.digest in digests and store.result(ended) is not None:
                digests.remove(ended.digest)
                if not digests:
                    outcomes[name] = _write(name, plans[name], store, setting, {}, folder)
                    write_page(folder)

    with locked(folder, f"--out: another `fedrf paper run` uses {folder}; choose another folder"):
        errors, complete = run_jobs(jobs, store, titles, processes, address, write_if_complete)
        for name in plans.keys() - outcomes.keys():
            outcomes[name] = _write(name, plans[name], store, setting, errors, folder)
        write_page(folder)
    return [outcomes[name] for name in plans], complete


def _jobs(plans: Mapping[str, Plan]) -> tuple[dict[str, Job], dict[str, str]]:
    """Return all jobs once, and what each is for."""
    jobs: dict[str, Job] = {}
    titles: dict[str, str] = {}
    for name, plan in plans.items():
        for cell in plan.cells:
            jobs.setdefault(cell.job.digest, cell.job)
            titles.setdefault(cell.job.digest, f"{name}: {cell.place}")
    return jobs, titles


def _write(
    name: str, plan: Plan, store: JobStore, setting: Setting, errors: Mapping[str, str], folder: Path
) -> Outcome:
    """Write the outcome of an experiment: JSON, Markdown and its figure."""
    experiment = EXPERIMENTS[name]
    outcome = collect(experiment, plan, store, setting, errors)
    outcome.save(folder)
    text = as_markdown(outcome)
    write_atomically(folder / f"{outcome.stem}.md", lambda path: path.write_text(text, encoding="utf-8"))
    for suffix in ("svg", "png"):
        (folder / f"{outcome.stem}.{suffix}").unlink(missing_ok=True)  # of an earlier outcome
    if experiment.draw is not None and outcome.finished:
        write_figure(outcome, experiment.draw, folder)
    return outcome

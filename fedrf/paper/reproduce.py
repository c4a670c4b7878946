"""Run experiments of the paper and write their tables, figures and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrf.files import locked, write_atomically
from fedrf.paper.figures import write_figure
from fedrf.paper.jobs import JobStore
from fedrf.paper.outcome import Outcome, collect
from fedrf.paper.page import write_page
from fedrf.paper.plan import Experiment, Job, Plan
from fedrf.paper.rendering import as_markdown
from fedrf.paper.runner import run_jobs
from fedrf.paper.setting import Setting


def reproduce(
    experiments: Sequence[Experiment],
    setting: Setting,
    folder: Path,
    processes: int,
    address: str | None = None,
) -> tuple[list[Outcome], bool]:
    """Run all jobs that are not finished; return the outcomes, and False if it was interrupted.

    Experiments share jobs. An experiment's files are written as soon as its last job has ended, and all of them at the
    end, also after an interruption.
    """
    plans = {experiment.name: experiment.recipe(setting) for experiment in experiments}
    by_name = {experiment.name: experiment for experiment in experiments}
    jobs, titles = _jobs(plans)
    store = JobStore(folder / "runs")

    def write_complete(ended: Job) -> None:
        for name, plan in plans.items():
            needed = {cell.job.digest: cell.job for cell in plan.cells}
            if ended.digest in needed and all(store.result(job) is not None for job in needed.values()):
                _write(by_name[name], plan, store, setting, {}, folder)
                write_page(folder)

    with locked(folder, f"--out: another `fedrf paper run` uses {folder}; choose another folder"):
        errors, complete = run_jobs(jobs, store, titles, processes, address, write_complete)
        outcomes = [_write(by_name[name], plan, store, setting, errors, folder) for name, plan in plans.items()]
        write_page(folder)
    return outcomes, complete


def _jobs(plans: Mapping[str, Plan]) -> tuple[dict[str, Job], dict[str, str]]:
    """Return all jobs once, and what each is for."""
    jobs: dict[str, Job] = {}
    titles: dict[str, str] = {}
    for name, plan in plans.items():
        for cell in plan.cells:
            jobs.setdefault(cell.job.digest, cell.job)
            place = ", ".join(part for part in (cell.table, cell.row, cell.column) if part != "accuracy")
            titles.setdefault(cell.job.digest, f"{name}: {place}")
    return jobs, titles


def _write(
    experiment: Experiment, plan: Plan, store: JobStore, setting: Setting, errors: Mapping[str, str], folder: Path
) -> Outcome:
    """Write the outcome of an experiment: JSON, Markdown and its figure."""
    outcome = collect(experiment, plan, store, setting, errors)
    outcome.save(folder)
    text = as_markdown(outcome)
    write_atomically(folder / f"{outcome.stem}.md", lambda path: path.write_text(text, encoding="utf-8"))
    for suffix in ("svg", "png"):
        (folder / f"{outcome.stem}.{suffix}").unlink(missing_ok=True)  # of an earlier outcome
    if experiment.draw is not None and outcome.finished:
        write_figure(outcome, experiment.draw, folder)
    return outcome

"""Speed and memory of closed-form RF-TCA, as ratios within one run: `make bench`, about six minutes on two cores.

RF-TCA is compared with the textbook algorithm for the same solution, and with the time of its own two matrix products,
which is a lower bound.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import scipy.linalg
import torch

from benchmarks.rows import report
from fedrf.estimators import RFTCA
from fedrf.tca.statistics import gram_matrix

COLUMNS, DIM, SIGMA, GAMMA = 1280, 100, 1.0, 0.01
NUM_SOURCE, NUM_TARGET = 2817, 795  # Office-31, amazon to webcam
CHUNK_ROWS, STREAM_ROWS, MEMORY_ROWS = 8192, 200_000, 1_000_000


def make_rows(count: int, seed: int = 0) -> np.ndarray:
    """Return features like those of an image network: not negative, of norm 1, in 31 clusters."""
    rng = np.random.RandomState(seed)
    centres = np.abs(rng.randn(31, COLUMNS)) * (rng.rand(31, COLUMNS) < 0.3)
    rows = np.abs(centres[rng.randint(31, size=count)] + 0.5 * rng.randn(count, COLUMNS))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def textbook(rows: np.ndarray, num_source: int, frequencies: np.ndarray, generalised: bool) -> np.ndarray:
    """Solve RF-TCA as it is usually coded: n × n centring and label matrices, and a non-symmetric eigenproblem.

    `generalised` solves S w = λ (γI + vvᵀ) w, as public TCA programs do; otherwise the matrix is inverted first, as in
    the paper's formula.
    """
    count, num_features = len(rows), len(frequencies)
    angles = frequencies @ rows.T
    features = np.vstack([np.cos(angles), np.sin(angles)]) / np.sqrt(num_features)
    centring = np.eye(count) - np.ones((count, count)) / count
    labels = np.where(np.arange(count) < num_source, 1 / num_source, -1 / (count - num_source))
    penalty = features @ np.outer(labels, labels) @ features.T + GAMMA * np.eye(2 * num_features)
    scatter = features @ centring @ features.T
    if generalised:
        values, vectors = scipy.linalg.eig(scatter, penalty)
    else:
        values, vectors = np.linalg.eig(np.linalg.inv(penalty) @ scatter)
    return vectors[:, np.argsort(-values.real)[:DIM]].real


def seconds(work: Callable[[], object]) -> float:
    """Return the time of one call."""
    time.sleep(0.05)  # until the spinning threads of the library that ran before have gone to sleep
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(*works: Callable[[], object], repeats: int = 5) -> list[float]:
    """Return the median time of each job; jobs alternate, so that a slow phase of the machine affects all of them."""
    times = [[seconds(work) for work in works] for _ in range(repeats + 1)][1:]
    return [median(column) for column in zip(*times, strict=True)]


def products(rows: torch.Tensor, frequencies: torch.Tensor) -> Callable[[], object]:
    """Return a job that computes only the two matrix products of RF-TCA, into allocated memory."""
    angles = torch.empty(len(rows), len(frequencies))
    features = torch.randn(len(rows), 2 * len(frequencies))

    def work() -> None:
        torch.mm(rows, frequencies.T, out=angles)
        gram_matrix(features)

    return work


def compare_with_textbook_and_products() -> None:
    rows = make_rows(NUM_SOURCE + NUM_TARGET)
    rows[NUM_SOURCE:] += 0.005
    domain = np.repeat([1, -1], [NUM_SOURCE, NUM_TARGET])
    double = rows.astype(np.float64)
    for num_features, goal in ((500, ">= 30"), (1000, ">= 15")):
        estimator = RFTCA(DIM, num_features, SIGMA, GAMMA)
        fit = partial(estimator.fit, rows, sample_domain=domain)
        frequencies = fit().features_.frequencies
        solve = partial(textbook, double, NUM_SOURCE, frequencies.double().numpy())
        angle = scipy.linalg.subspace_angles(solve(generalised=False), estimator.aligner_).max()
        report(f"N = {num_features}: largest principal angle to the textbook solution", angle, bar="<= 1e-3")
        multiply = products(torch.from_numpy(rows), frequencies)
        fitting, inverting, multiplying = interleaved(fit, partial(solve, generalised=False), multiply)
        report(f"N = {num_features}: seconds of RFTCA.fit", fitting, "s")
        report(f"N = {num_features}: textbook with inverse and eig / RFTCA", inverting / fitting, bar=goal)
        report(f"N = {num_features}: textbook with inverse and eig / RFTCA's products alone", inverting / multiplying)
        if num_features == 1000:
            report(f"N = {num_features}: RFTCA / its matrix products alone", fitting / multiplying, bar="<= 3")
        else:  # at N = 1000 one run takes two minutes, and the form with the inverse is faster
            (generalised,) = interleaved(partial(solve, generalised=True))
            report(f"N = {num_features}: textbook with generalised eig / RFTCA", generalised / fitting, bar=goal)


def gamma_path() -> None:
    rows, gammas = make_rows(NUM_SOURCE + NUM_TARGET), [10.0**power for power in range(-3, 4)]
    domain = np.repeat([1, -1], [NUM_SOURCE, NUM_TARGET])

    def fit_each() -> None:
        for gamma in gammas:
            RFTCA(DIM, 1000, SIGMA, gamma).fit(rows, sample_domain=domain)

    def fit_path() -> None:
        for aligner in RFTCA(DIM, 1000, SIGMA, gammas[0]).fit(rows, sample_domain=domain).gamma_path(gammas):
            aligner.aligner_  # noqa: B018

    separate, together = interleaved(fit_each, fit_path)
    report(f"N = 1000: {len(gammas)} separate fits / one fit and gamma_path", separate / together, bar=">= 4")


def chunks(total: int, mixed: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield chunks of rows and domains, a quarter of them target rows: mixed in each chunk, or in separate chunks."""
    templates = [make_rows(CHUNK_ROWS, seed) for seed in range(2)]
    for index, start in enumerate(range(0, total, CHUNK_ROWS)):
        rows = templates[index % len(templates)][: total - start]
        positions = np.arange(len(rows)) if mixed else np.full(len(rows), index)
        yield rows, np.where(positions % 4 == 0, -1, 1)


def streaming(mixed: bool) -> None:
    parts = list(chunks(STREAM_ROWS, mixed))
    estimator = RFTCA(DIM, 1000, SIGMA, GAMMA).partial_fit(parts[0][0], sample_domain=parts[0][1])
    frequencies = estimator.features_.frequencies
    sizes = {len(rows) for rows, _ in parts}
    multiply = {size: products(torch.from_numpy(make_rows(size)), frequencies) for size in sizes}
    fitting = multiplying = 0.0
    for rows, domain in parts:
        fitting += seconds(partial(estimator.partial_fit, rows, sample_domain=domain))
        multiplying += seconds(multiply[len(rows)])
    fitting += seconds(lambda: estimator.aligner_)
    kind = "mixed chunks" if mixed else "chunks of one domain"
    report(f"N = 1000, {STREAM_ROWS} rows in {kind}: RFTCA / its products alone", fitting / multiplying, bar="<= 1.3")


def exponent() -> None:
    sizes = [10_000, 20_000, 40_000, 80_000]
    rows = make_rows(sizes[-1])
    domain = np.where(np.arange(sizes[-1]) % 4 == 0, -1, 1)

    def add(size: int) -> Callable[[], object]:
        return lambda: RFTCA(DIM, 500, SIGMA, GAMMA).partial_fit(rows[:size], sample_domain=domain[:size])

    times = interleaved(*(add(size) for size in sizes))
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    report(f"exponent of n in the time of adding {sizes[0]} to {sizes[-1]} rows", slope, bar="<= 1.1")


def resident(kind: str) -> float:
    """Return the memory of this process in GB, now (VmRSS) or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e6 for line in lines if line.startswith(kind))


def peak_memory() -> float:
    """Return the peak memory in GB on top of that of the process before; call it in a separate process."""
    before = resident("VmRSS")
    estimator = RFTCA(DIM, 1000, SIGMA, GAMMA)
    for rows, domain in chunks(MEMORY_ROWS, mixed=True):
        estimator.partial_fit(rows, sample_domain=domain)
    assert estimator.aligner_.shape == (2000, DIM)
    return resident("VmHWM") - before


def memory() -> None:
    script = "from benchmarks.rftca import peak_memory; print(peak_memory())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    report(f"GB of memory for {MEMORY_ROWS} rows from a generator, N = 1000", float(done.stdout), "GB", bar="<= 1")


def main() -> None:
    print(f"{torch.get_num_threads()} threads; n = {NUM_SOURCE + NUM_TARGET}, p = {COLUMNS}, m = {DIM} unless stated")
    compare_with_textbook_and_products()
    gamma_path()
    streaming(mixed=False)
    streaming(mixed=True)
    exponent()
    memory()


if __name__ == "__main__":
    main()

# Every target makes .venv first when it is missing or older than what defines it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Real data sets, where there are any: benchmarks, the demo and the realdata tests use them in place.
FEDRF_DATA ?= $(wildcard ../shared/data)
export FEDRF_DATA
export RAY_DISABLE_USAGE_STATS := 1
export RAY_USAGE_STATS_ENABLED := 0
export WANDB_MODE ?= offline

.PHONY: demo test test-ray test-others lint format bench gpu-check faults clean

demo: $(READY)
	$(BIN)/python -m fedrf.cli.demo

# All tests in two processes, those that start a Ray in one of them; each shows its output when it is done.
test: $(READY)
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	@OMP_NUM_THREADS=1 $(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target test-ray test-others
endif

test-ray:
	$(BIN)/python -m pytest -m "(ray or cluster) and not endurance"

test-others:
	$(BIN)/python -m pytest -m "not ray and not cluster and not endurance"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck .ci/run cluster/slurm.sh cluster/submit
	$(BIN)/hadolint Dockerfile

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m benchmarks $(ARGS)

# The first thing to run on a machine with a GPU; says in one line if there is none that can be used.
gpu-check: $(READY)
	@$(BIN)/python -m benchmarks.gpu_check

# Hundreds of random faults of real processes, which take an hour or two; writes the tables of docs/reliability.md.
faults: $(READY)
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.faults.soak

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@echo "Installing fedrf and what it needs into .venv (a few minutes and 6.5 GB the first time) ..."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev,weights,bayes]'
	@touch $@

# make quickstart   set up and run the whole pipeline on a small real task (about ten minutes on two cores)
# make test         set up and run the tests
# make test-fast    run the tests that start no process and train nothing for longer than a second
# make runtime      join the runtime into one file, to be copied beside packed students
# make check        lint, formatting and tests

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
REQUIREMENTS := $(addprefix requirements,.txt -quickstart.txt -fairseq.txt -onnx.txt -ray.txt -slurm.txt -tracking.txt -dev.txt)

.PHONY: quickstart test test-fast lint check runtime

quickstart: $(VENV)/installed
	$(RUN) experiment.py run configs/experiments/quickstart.yaml

test: $(VENV)/installed
	$(RUN) -m pytest

test-fast: $(VENV)/installed
	$(RUN) -m pytest -m "not slow"

lint: $(VENV)/installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-cache

check: lint test

runtime:
	$(PYTHON) runtimes/python/join.py

$(VENV)/installed: $(REQUIREMENTS)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet $(addprefix -r ,$(REQUIREMENTS))
	$(VENV)/bin/pip install --quiet --no-deps ve-fairseq==0.12.3  # RoBERTa; its own list asks for speech libraries
	touch $@

# make quickstart   set up what the program needs, and run the whole pipeline on a small real task (about ten minutes on two cores)
# make test         set up everything, optional libraries too, and run the tests
# make test-fast    run the tests that start no process and train nothing for longer than a second
# make runtime      join the runtime into one file, to be copied beside packed students
# make check        lint, formatting and tests

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
CORE := requirements.txt requirements-quickstart.txt
EXTRAS := $(addprefix requirements-,fairseq.txt onnx.txt ray.txt slurm.txt tracking.txt dev.txt)

.PHONY: quickstart test test-fast lint check runtime

quickstart: $(VENV)/core
	$(RUN) experiment.py run configs/experiments/quickstart.yaml

test: $(VENV)/full
	$(RUN) -m pytest -n auto --dist worksteal

test-fast: $(VENV)/full
	$(RUN) -m pytest -n auto --dist worksteal -m "not slow"

lint: $(VENV)/full
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-cache

check: lint test

runtime:
	$(PYTHON) runtimes/python/join.py

$(VENV)/core: $(CORE)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet $(addprefix -r ,$(CORE))
	touch $@

$(VENV)/full: $(VENV)/core $(EXTRAS)
	$(VENV)/bin/pip install --quiet $(addprefix -r ,$(CORE) $(EXTRAS))
	$(VENV)/bin/pip install --quiet --no-deps ve-fairseq==0.12.3  # RoBERTa; its own list asks for speech libraries
	touch $@

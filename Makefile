# make quickstart   install the core and run the whole pipeline on a small real task (five to ten minutes on two cores)
# make test         install everything, optional libraries included, and run the tests
# make test-fast    run the tests that start no process and train for at most a second
# make lint         check style, formatting and the layers of imports
# make check        lint and test
# make soak         make faults on purpose for MINUTES (60 by default) and check that nothing is lost: docs/reliability.md
# make coverage-c   list the lines and branches of the C runtime that its tests do not run; gcc and gcov
# make coverage-runtime   the same for the NumPy runtime
# make docs         build the pages of docs/ in docs/_build/html; a warning is an error
# make runtime      join the runtime into one file, runtimes/python/featherweight.py
# make constraints   write the versions that .venv has to constraints.txt
# make wheel        build the wheel, dist/featherweight-VERSION-PLATFORM.whl
# make npm          build the npm package, dist/featherweight-text-VERSION.tgz
# make newest       try the wheel with the newest versions that its ranges allow: EXTRA=train,quickstart CONSTRAINT=torch==2.13.0

PYTHON ?= python3
CPU_TORCH ?= https://download.pytorch.org/whl/cpu
MINUTES ?= 60
EXTRA ?= runtime
VENV := .venv
RUN := $(VENV)/bin/python
CORE := requirements.txt requirements-quickstart.txt
EXTRAS := $(addprefix requirements-,fairseq.txt onnx.txt ray.txt slurm.txt tracking.txt web.txt docs.txt dev.txt)

# On Linux without an NVIDIA GPU, PyTorch's CPU build (200 MB, not 3 GB), where its index answers within five seconds.
ANSWERS = $(PYTHON) -c 'import urllib.request as r; r.urlopen("$(CPU_TORCH)/torch/", timeout=5)' 2>/dev/null
WANTS_CPU = test "$$(uname)" = Linux && ! command -v nvidia-smi >/dev/null && $(ANSWERS)
# Compiling every module takes a minute; Python compiles those that it imports.
INSTALL = $(VENV)/bin/pip install --quiet --no-compile $$($(WANTS_CPU) && echo --extra-index-url $(CPU_TORCH))

.PHONY: quickstart test test-fast lint check soak coverage-c coverage-runtime docs runtime constraints wheel npm newest

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

soak: $(VENV)/full
	$(RUN) benchmarks/faults.py --minutes $(MINUTES)

coverage-c: $(VENV)/full
	$(RUN) benchmarks/c_coverage.py

coverage-runtime: $(VENV)/full
	$(RUN) -m coverage run --branch --source=compression/runtime -m pytest $(addprefix tests/,runtime packing tokenizers students/test_spans.py)
	$(RUN) -m coverage report --show-missing

docs: $(VENV)/docs
	$(RUN) -m sphinx --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build/html

runtime:
	$(PYTHON) runtimes/python/join.py

constraints:
	head -1 constraints.txt > constraints.new
	$(RUN) -m pip freeze --all --exclude pip | sed 's/+cpu$$//' >> constraints.new
	mv constraints.new constraints.txt

wheel: $(VENV)/full
	$(RUN) -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir dist

newest:
	$(PYTHON) benchmarks/newest.py $(EXTRA) $(addprefix --constraint ,$(CONSTRAINT))

npm:
	mkdir -p dist
	cd runtimes/web && npm pack --pack-destination ../../dist

$(VENV)/core: $(CORE) constraints.txt
	$(PYTHON) -m venv $(VENV)
	-$(RUN) -m pip install --quiet --upgrade pip  # twice as fast as the one that Python 3.11 has
	$(INSTALL) $(addprefix -r ,$(CORE))
	touch $@

$(VENV)/full: $(VENV)/core $(EXTRAS)
	$(INSTALL) $(addprefix -r ,$(CORE) $(EXTRAS))
	$(INSTALL) --no-deps ve-fairseq==0.12.3  # RoBERTa; its dependencies include speech libraries
	-$(RUN) -m compileall -q -j 0 $(VENV)/lib >/dev/null  # tests start many processes, which may not write bytecode
	touch $@

$(VENV)/docs: $(VENV)/core requirements-docs.txt
	$(INSTALL) -r requirements-docs.txt
	touch $@

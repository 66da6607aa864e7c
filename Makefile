# Everything here works on a fresh machine with Python 3.11 or 3.12 and git.

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3,$(shell \
	$(p) -c 'import sys; sys.version_info >= (3, 11) and print(sys.executable)' 2>/dev/null)))
# One more than cores: tests of ranks and of Slurm wait.
CORES := $(shell nproc)
WORKERS ?= $(shell expr $(CORES) + 1)
# Files go to the workers in the order of `testpaths`, the longest first.
PYTEST := pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of processes read the same modules: compiled once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: env check test test-all budgets lint types style demo docs wheel bench gpu gpu-pack peers lock

env: .venv/made  ## the environment, with the versions of the two lock files

.venv/made: requirements.lock torch.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer: make env PYTHON=/path/to/it"; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement requirements.lock
	.venv/bin/python -m pip install --quiet --no-compile --requirement torch.lock
	.venv/bin/python -m pip install --quiet --no-deps --editable .
	# Snakemake looks for its plugins on the path, where an editable install puts none.
	echo $(CURDIR)/plugins > $$(.venv/bin/python -c \
		'import sysconfig; print(sysconfig.get_path("purelib"))')/snakemake_logger_plugin_pipeline.pth
	# On all cores, which pip does on one. A package holds templates that are no Python.
	.venv/bin/python -m compileall -q -j 0 .venv/lib > /dev/null || true
	touch $@

check: lint  ## linters, types, and the tests that start no process: what to run before each commit
	OMP_NUM_THREADS=1 $(PYTEST) --numprocesses $(CORES) --quiet --no-processes \
		-m "not slow and not mpi and not slurm and not exhaustive"

test: lint  ## linters, types, and every promise once: what continuous integration runs
	OMP_NUM_THREADS=1 $(PYTEST) --durations 25 -m "not exhaustive"

test-all: lint  ## every test that this machine can run, sweeps too: before a release
	OMP_NUM_THREADS=1 $(PYTEST) --durations 25

budgets: env  ## write what each file of tests takes to tests/budgets.json: on a quiet machine
	OMP_NUM_THREADS=1 $(PYTEST) --quiet --write-budgets

lint: env
	$(MAKE) --no-print-directory --jobs 2 types style

types:
	mypy

style:
	ruff check .
	ruff format --check .
	lint-imports
	snakefmt --check --line-length 100 Snakefile workflows/rules
	snakemake --lint

demo: env  ## CHGNet on real DFT data and HT-FBR, from raw files to figures; ends with the path of the report
	# Many small jobs share the cores better than one large: it starts first and takes one.
	snakemake --prioritize results/chgnet/hfo2/figures --set-threads train=1 evaluate=1 infer=1
	snakemake --report results/report.html
	@echo $(CURDIR)/results/report.html

docs: env  ## the documentation: docs/_build/index.html
	python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto docs docs/_build
	@echo $(CURDIR)/docs/_build/index.html

FRESH := build/fresh/bin/python
wheel: env  ## the package, built, installed beside the dependencies of .venv, and tried where no clone is
	rm -rf build dist
	python -m pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir dist .
	python -m venv build/fresh
	$(FRESH) -m pip install --quiet --no-deps --no-index dist/*.whl
	# What it depends on is that of .venv, without the editable package there.
	.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(FRESH) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth
	$(FRESH) -I -c 'import sys, pipeline_core, pipeline_kernels, pipeline_mace as m; \
		sys.exit(not all(p.__file__.startswith(sys.prefix) for p in (pipeline_core, pipeline_kernels, m)))'
	build/fresh/bin/pipeline-core init --experiment chgnet/smoke build/empty
	cd build/empty && ../fresh/bin/python -m snakemake && ../fresh/bin/python -m snakemake --report results/report.html
	@ls dist/*.whl

bench: env  ## one benchmark with NAME=<name>, otherwise all of them as a table
	python tests/benchmarks/$(if $(NAME),$(NAME).py,)

gpu:  ## tests and benchmarks on a GPU, without a network, in 11 minutes; DEVICE=cpu is the dry run
	COMMIT=$(COMMIT) $(if $(wildcard .venv/bin/python),python,python3) tests/benchmarks/gpu --device $(or $(DEVICE),cuda)

gpu-pack: env  ## what `make gpu` needs on a machine without a network: build/gpu/pack.tar.xz
	python tests/benchmarks/gpu/pack.py

peers: .venv-peers/made  ## a second environment, for rivals that cannot share ours

.venv-peers/made: tests/benchmarks/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --requirement $< --requirement torch.lock
	# It asks for an older torch than it needs.
	.venv-peers/bin/python -m pip install --quiet --no-deps dptb==2.2.1
	touch $@

lock:  ## write requirements.lock anew: the newest versions that fit torch.lock, with the hashes of all their files
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet ".[test,docs]" --requirement torch.lock
	.venv-lock/bin/python -m pip freeze --all --exclude pip --exclude pipeline-core --exclude torch --exclude triton \
		| sed -e '/^nvidia-.*-cu[0-9]/d' -e '/^cuda-/d' -e 's/+[a-z0-9.]*$$//' > requirements.new
	.venv-lock/bin/python -m pip install --quiet uv
	.venv-lock/bin/uv pip compile --quiet --no-deps --generate-hashes --no-annotate --no-header \
		--output-file .venv-lock/hashed requirements.new
	head -3 requirements.lock | cat - .venv-lock/hashed > requirements.new
	mv requirements.new requirements.lock
	rm -rf .venv-lock

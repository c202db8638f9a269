PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all benchmark docs lint clean

demo: $(VENV)/demo-ready  ## the problem and the cure on a real server, in some ten seconds
	$(BIN)/redis-lock demo

test: $(VENV)/tox-ready  ## what every change must pass, on this Python
	$(BIN)/tox run-parallel --parallel 2 --parallel-no-spinner -e lint,checks,docs
	$(BIN)/tox run-parallel --parallel 2 --parallel-no-spinner --notest -e redis8,legacy,redis5
	$(BIN)/tox run -e redis8,legacy
	$(BIN)/tox run -e redis5 -- tests/unit tests/behaviour/test_lock.py tests/behaviour/test_lock_names.py \
		tests/behaviour/test_decorator.py tests/behaviour/test_decorated_calls.py tests/behaviour/test_async_decorator.py \
		tests/behaviour/test_functions.py tests/integration/test_connections.py \
		-k "behaviour or connections or test_background or test_client or test_closed or test_copies or test_errors \
		or test_exclusive or test_idle or test_marked or test_master or test_openings or test_origins or test_pools \
		or test_ports or test_private or test_resp or test_subscriptions or test_texts or test_transports or test_unbound"

test-all: $(VENV)/tox-ready  ## slow tests too, on every Python and redis-py; Pythons that are missing are skipped
	ALL_LINES=1 LARGE_MODELS=1 PYTEST_ADDOPTS="-m ''" $(BIN)/tox run --skip-missing-interpreters true

benchmark: $(VENV)/tox-ready  ## what a lock costs, beside redis-py's own
	$(BIN)/tox run -e benchmark

docs: $(VENV)/docs-ready  ## the site: docs/_build/html/index.html
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

lint: $(VENV)/tox-ready
	$(BIN)/tox run -e lint,checks

clean:
	rm -rf $(VENV) .tox build docs/_build *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/tox-ready: $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "tox>=4.11"
	touch $@

$(VENV)/demo-ready: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[cli,embedded]"
	touch $@

$(VENV)/docs-ready: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

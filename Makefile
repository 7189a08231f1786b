# `make demo` and `make test` start from nothing: each makes its own virtual environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint fuzz faults kills bad-candidates soak bench clean

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/mobilenet_v2.py

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/mypy

fuzz: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=fuzz

faults: $(VENV)/dev.stamp
	$(BIN)/python tests/plant_faults.py --jobs 2

kills: $(VENV)/dev.stamp
	$(BIN)/python tests/kill_tuning.py

bad-candidates: $(VENV)/dev.stamp
	cd tests/autotune && $(CURDIR)/$(BIN)/python test_bad_candidates.py 100

soak: $(VENV)/dev.stamp
	$(BIN)/python -m minitvm.testing.soak

bench: $(VENV)/bench.stamp
	$(BIN)/python benchmarks/run.py

$(VENV)/%.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) build dist mobilenet_v2.so mobilenet_v2.h mobilenet_v2_sample.c

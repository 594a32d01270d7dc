# Every target sets up what it needs in .venv: Python 3.10-3.13 and a C compiler are enough.
# `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT := out
DIGITS := examples/digits

.DEFAULT_GOAL := help
.PHONY: help install demo test slow check format bench docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The stamp is made anew when the dependencies change, and not when the sources do (-e).
$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[test]'
	@touch $@

install: $(BIN)/.installed ## Make .venv and install aotrain into it, editable

demo: $(BIN)/.installed ## Compile, train, evaluate and export a model of handwritten digits
	@mkdir -p $(OUT)
	$(BIN)/aotrain compile $(DIGITS)/model.onnx --loss cross-entropy --batch 32 --force -o $(OUT)/digits.aot
	$(OUT)/digits.aot/aotrun $(OUT)/digits.aot --data $(DIGITS)/train.npz --epochs 10 --save $(OUT)/digits.safetensors
	$(BIN)/aotrain eval $(OUT)/digits.aot --state $(OUT)/digits.safetensors --data $(DIGITS)/test.npz
	$(BIN)/aotrain export $(OUT)/digits.aot --state $(OUT)/digits.safetensors --force -o $(OUT)/digits.onnx

test: $(BIN)/.installed ## Run the tests, but for the slow ones
	$(BIN)/python -m pytest -q -n 2 -m "not slow and not gpu"

slow: $(BIN)/.installed ## Run the tests that take minutes
	$(BIN)/python -m pytest -q -n 2 -m "slow and not gpu"

check: $(BIN)/.installed ## What CI runs: ruff, mypy, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) test

format: $(BIN)/.installed ## Format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BIN)/.installed ## Time a training step on this machine, beside others that are installed
	$(BIN)/python benchmarks/step.py

docs: $(BIN)/.installed ## Write docs/cli.md and the table of docs/errors.md anew
	$(BIN)/python docs/reference.py

clean: ## Remove .venv and what was built
	rm -rf $(VENV) $(OUT) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Every target makes what it needs: python 3.11+, pip and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A bare `torch` would bring the multi-gigabyte CUDA build to machines that have no use for it.
TORCH ?= torch==2.13.0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check format bench soak clean
help: ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing agentree and its dependencies into $(VENV) (once, a minute or two)"
	@$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install --quiet "$(TORCH)"
	@$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(READY) ## Run a ReAct agent on the embedded model
	@$(BIN)/agentree demo

test: check ## Lint, types and tests
	@$(BIN)/agentree models fetch
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

check: $(READY) ## Lint, types and layers only
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/python -m pytest -q tests/test_layers.py

format: $(READY) ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## Run the benchmarks
	@$(BIN)/agentree models fetch
	@$(BIN)/python -m benchmarks

soak: $(READY) ## Long randomized tests
	@$(BIN)/python -m tests.soak_cache
	@$(BIN)/python -m tests.soak_engine
	@$(BIN)/python tests/engine_histories.py 0 200
	@$(BIN)/python tests/schema_mutants.py 0 2000
	@$(BIN)/python -m tests.soak_kernels
	@AGENTREE_TREES=200 $(BIN)/python -m pytest -q --timeout 0 tests/test_engine_trees.py
	@for how in "kill 1" "twice 5" "full 1" "readonly 1"; do \
		folder=$$(mktemp -d) && $(BIN)/python -W error tests/journal_matrix.py $$folder/runs $$how \
			&& rm -r $$folder || exit 1; \
	done

clean: ## Remove the environment and what was built
	rm -rf $(VENV) dist build .pytest_cache .hypothesis .ruff_cache

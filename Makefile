# Everything a newcomer needs: `make demo` and `make test`. Both set up .venv by themselves, with a
# pip that reads an index in a third of the time that the one which comes with Python takes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 3

.PHONY: help demo test lint unit audit sbom bench lock picture clean
help:
	@echo "make demo    index the bundled sample folder and search it"
	@echo "make test    lint, types and all tests (what CI runs)"
	@echo "make lint    ruff and mypy only"
	@echo "make unit    tests only; make unit ARGS='-k filter' for some of them"
	@echo "make audit   known vulnerabilities (asks the network), security lint, licences"
	@echo "make sbom    bill of materials to sbom.json (CycloneDX)"
	@echo "make bench   speed, size and quality, also of peers, to docs/benchmarks/ (several hours, 4 GB)"
	@echo "make picture draws the pictures of the docs anew, and lists the options of commands"
	@echo "make lock    pin the newest versions in requirements.lock"
	@echo "make clean   delete .venv and what tools left behind"

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Clew needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	@echo "Setting up $(VENV) (once; a minute or two) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25'
	@$(BIN)/python -m pip install --quiet --no-compile -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)
	$(BIN)/clew index sample
	$(BIN)/clew search --store sample --limit 3 "electric fuse keeps blowing"
	@echo "Now try: $(BIN)/clew search --store sample --explain TX-4471-B"

test: lint unit

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# pip-audit asks a database of vulnerabilities on the network, so it is no part of `make test`; the
# other two are. It lives beside what it looks at.
audit: $(READY)
	$(BIN)/ruff check src
	$(BIN)/python tools/dependencies.py licences
	@test -x $(VENV)/audit/bin/pip-audit || { $(BIN)/python -m venv $(VENV)/audit && \
	  $(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; }
	$(VENV)/audit/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes \
	  --requirement requirements.lock

sbom: $(READY)
	$(BIN)/python tools/dependencies.py sbom > sbom.json

bench: $(READY)
	$(BIN)/python benchmarks/serve.py --out docs/benchmarks/serve.md
	$(BIN)/python benchmarks/startup.py --out docs/benchmarks/startup.md
	$(BIN)/python benchmarks/page.py --out docs/benchmarks/page.md
	$(BIN)/python benchmarks/concurrency.py --out docs/benchmarks/concurrency.md
	$(BIN)/python benchmarks/reindex.py --out docs/benchmarks/reindex.md
	$(BIN)/python benchmarks/exocortex.py --out docs/benchmarks/exocortex.md
	$(BIN)/python benchmarks/engine.py --out docs/benchmarks/engine.md
	$(BIN)/python benchmarks/fit_fusion.py --out docs/benchmarks/fusion.md
	$(BIN)/python benchmarks/fit_confidence.py --out docs/benchmarks/confidence-fit.md
	$(BIN)/python benchmarks/confidence.py --out docs/benchmarks/confidence.md
	$(BIN)/python benchmarks/athena.py --every 4 --out docs/benchmarks/athena.md
	$(BIN)/python benchmarks/side_sources.py --out docs/benchmarks/side_sources.md
	$(BIN)/python benchmarks/low_entropy.py --out docs/benchmarks/low_entropy.md
	$(BIN)/python benchmarks/vector_recall.py --out docs/benchmarks/vector_recall.md
	$(BIN)/python benchmarks/cache.py --out docs/benchmarks/cache.md
	$(BIN)/python benchmarks/sources.py --out docs/benchmarks/sources.md
	$(BIN)/python benchmarks/stores.py --out docs/benchmarks/stores.md
	$(BIN)/python benchmarks/servers.py --out docs/benchmarks/servers.md
	$(BIN)/python benchmarks/scale.py --out docs/benchmarks/scale.md
	$(BIN)/python benchmarks/memory.py --out docs/benchmarks/memory.md
	$(BIN)/python benchmarks/memory_locomo.py --out docs/benchmarks/memory_locomo.md
	$(BIN)/python benchmarks/agentic.py --out docs/benchmarks/agentic.md
	$(BIN)/python benchmarks/lookup.py --out docs/benchmarks/lookup.md
	$(BIN)/python benchmarks/graph.py --out docs/benchmarks/graph.md
	$(BIN)/python benchmarks/calibration.py --out docs/benchmarks/calibration.md
	$(BIN)/python benchmarks/tree.py --out docs/benchmarks/tree.md --plot docs/benchmarks/tree.png
	$(BIN)/python benchmarks/fit_rerank.py --queries 200 --out docs/benchmarks/rerank.md
	$(BIN)/python benchmarks/quality.py --out docs/benchmarks/quality.md \
	  --plot docs/benchmarks/quality.png
	$(BIN)/python benchmarks/speed.py --out docs/benchmarks/speed.md --plot docs/benchmarks/speed.png

lock: $(READY)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --upgrade --output-file requirements.lock

picture: $(READY)
	$(BIN)/python docs/picture.py docs/images/search.svg
	$(BIN)/python docs/packages.py docs/images/packages.svg
	$(BIN)/python docs/screenshots.py docs/images
	$(BIN)/python docs/commands.py docs/cli.md

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis sample/.clew benchmarks/.cache

# Everything a checkout does. `make conformance` and `make test` set themselves up.

PYTHON ?= python3
VENV ?= .venv
RUNTIME ?= reference
BROWSER ?= chromium
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CODE := reference conformance cupy_kernels tools

.PHONY: help conformance conformance-kernels landscape test lint types generate generated docs docs-pdf wheel constraints ci clean

help:
	@echo "make conformance   run the suite on RUNTIME=$(RUNTIME), print the score, write conformance-report/"
	@echo "make conformance-kernels   the same for the CUDA kernels, on the CPU"
	@echo "make landscape     measure the runtimes that are installed in $(VENV), write docs/landscape/"
	@echo "make test          run all tests"
	@echo "make lint types    check style, import directions and types"
	@echo "make generate      rewrite the generated files"
	@echo "make docs          build the site in docs/_build/html; make docs-pdf the specification as one PDF"
	@echo "make wheel         build the wheel and try it in an empty environment"

conformance: $(INSTALLED)
	$(BIN)/python -m pytest conformance --runtime=$(RUNTIME)

# The CUDA kernels with the CPU in a device's place: all profiles but concurrency, for which a run has to be seen in flight.
conformance-kernels: $(INSTALLED)
	$(BIN)/python -m pytest conformance --runtime=cupy --runtime-option=device=host -n 2 --report=$(VENV)/kernels-report \
		--profile=dense --profile=flow --profile=paged --profile=heterogeneous --profile=memory

# A runtime that is not installed is skipped; its committed results stay. llama.cpp is built from source when it is asked
# for: $(BIN)/pip install -e '.[llama-cpp]'.
landscape: $(INSTALLED)
	$(BIN)/python -m mutcache_tools.landscape
	$(BIN)/python -m mutcache_tools.generate landscape

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(INSTALLED)
	$(BIN)/mypy $(CODE)

generate: $(INSTALLED)
	$(BIN)/python -m mutcache_tools.generate

generated: $(INSTALLED)
	$(BIN)/python -m mutcache_tools.generate --check

wheel: $(INSTALLED)
	VENV=$(VENV) .ci/try-wheel

docs: $(INSTALLED)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python -m mutcache_tools.site.check docs/_build/html

# One file to print: a page of HTML with a print stylesheet, and a PDF of it by the browser in $(BROWSER).
docs-pdf: $(INSTALLED)
	$(BIN)/sphinx-build -W --keep-going -q -b singlehtml -t print docs docs/_build/single
	@command -v $(BROWSER) >/dev/null || { echo "a PDF needs a browser: make docs-pdf BROWSER=chromium"; exit 2; }
	$(BROWSER) --headless --no-sandbox --disable-gpu --no-pdf-header-footer \
		--print-to-pdf=$(CURDIR)/docs/_build/mutcache.pdf file://$(CURDIR)/docs/_build/single/print.html

ci: lint types generated docs test conformance conformance-kernels wheel

# Pins of everything that the extras pull in, for runs that can be repeated.
constraints: $(INSTALLED)
	{ head -n 1 constraints.txt; $(BIN)/pip freeze --exclude-editable | grep -v ' @ '; } > $(VENV)/constraints.txt
	mv $(VENV)/constraints.txt constraints.txt

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "mutcache needs Python 3.11 or newer; name one with make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[conformance,dev,docs,kernels-dev,onnxruntime-genai]'
	@touch $@

clean:
	rm -rf $(VENV) dist conformance-report

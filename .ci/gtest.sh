#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Have GoogleTest for the native lanes: install it where we may, else say how. Argument: C++ compiler.
set -u
compiler=${1:-c++}
have() { echo '#include <gtest/gtest.h>' | "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; }

have && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing libgtest-dev"
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y libgtest-dev; } >/dev/null || exit 1
    have && exit 0
    echo "libgtest-dev was installed, but <gtest/gtest.h> still cannot be included" >&2
    exit 1
fi
echo "NO NATIVE TESTS: GoogleTest is missing. Debian, Ubuntu: apt-get install libgtest-dev   Fedora: dnf install gtest-devel" >&2

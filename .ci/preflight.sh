#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says in one line what a fresh machine lacks and which package brings it. Arguments: Python, C++ compiler.
set -u
python=${1:-python3}
compiler=${2:-c++}
missing=0

lacks() { # what, package of Debian and Ubuntu, package of Fedora
    echo "hixl_rma needs $1. Debian, Ubuntu: apt-get install $2   Fedora: dnf install $3" >&2
    missing=1
}

if ! command -v "$python" >/dev/null 2>&1; then
    lacks "Python 3.10 or newer ('$python' was not found)" python3 python3
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    lacks "Python 3.10 or newer ('$python' is older; name another one by make PYTHON=...)" python3 python3
else
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        lacks "Python's venv module" python3-venv python3
    header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
    [ -f "$header" ] || lacks "Python's headers (Python.h)" python3-dev python3-devel
fi

if ! command -v "$compiler" >/dev/null 2>&1; then
    lacks "a C++20 compiler ('$compiler' was not found)" g++ gcc-c++
elif ! printf '#include <concepts>\n#include <span>\nstatic_assert(std::integral<int>);\n' |
    "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
    lacks "a C++20 compiler ('$compiler' does not take -std=c++20)" g++ gcc-c++
fi
exit "$missing"

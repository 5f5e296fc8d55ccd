#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Configure one CMake preset with the tools of an environment: BIN PRESET COMPILER
set -eu
bin=$1 preset=$2 compiler=$3
cd "$(dirname "$0")/../native"
PATH=$bin:$PATH
CXX=$compiler
export PATH CXX
exec cmake --preset "$preset" -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DPython_EXECUTABLE="$bin/python"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run Python tests against a sanitizer build of the module: asan|tsan ENVIRONMENT PYTEST-ARGUMENTS...
#
# build/<sanitizer>/site is a package folder of its own: the sanitized module and links to the Python files, so the
# normal module beside the sources stays as it is. The base interpreter runs without `site`, because the environment's
# .pth file would lead back to the sources; it is a real binary, while a wrapper script would get the preload too.
set -eu
sanitizer=$1 environment=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
site=$root/build/$sanitizer/site
for source in "$root"/hixl_rma/*; do
    case $source in
    *.so | *__pycache__) ;;
    *) ln -sfn "$source" "$site/hixl_rma/" ;;
    esac
done
# Links to files that have been removed since.
find "$site/hixl_rma" -xtype l -delete

python=$(readlink -f "$environment/bin/python")
packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$root/build/$sanitizer/CMakeCache.txt")
# The C++ runtime must be there when the sanitizer looks for __cxa_throw, or the first exception ends the process.
preload="$("$compiler" -print-file-name="lib$sanitizer.so") $("$compiler" -print-file-name=libstdc++.so)"
export PYTHONPATH="$site:$packages"
export PYTHONMALLOC=malloc
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$root/.ci/tsan_python.supp:${TSAN_OPTIONS:-}"
cd "$site"
LD_PRELOAD=$preload "$python" -S -c "
import hixl_rma._core as core
assert '/build/$sanitizer/site/' in core.__file__, core.__file__"
cd "$root"
# A report goes to the descriptor that pytest would keep for itself, and ends the process.
exec env LD_PRELOAD="$preload" "$python" -S "$environment/bin/pytest" --capture=sys "$@"

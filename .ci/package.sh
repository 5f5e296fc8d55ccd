#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build the wheel and use it in a fresh environment that holds numpy alone: PYTHON BIN-OF-THE-BUILD-ENVIRONMENT
set -eu
python=$1 bin=$2
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$bin:$PATH
export PATH
"$bin/python" -m pip --disable-pip-version-check wheel -qq --no-deps --no-build-isolation -w "$work" "$root"
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install -qq "$work"/*.whl
cd "$work"
"$work/venv/bin/python" -W error - <<'PYTHON'
import sys
import numpy as np
import hixl_rma as rma

with rma.Window.allocate(8, "f8", notifications=4) as win:
    assert (win.rank, win.size) == (0, 1)
    with win.lock_all():
        win.put_notify(np.arange(8.0), 0, 0, notification=3)
        win.flush(0)
    note = win.wait_notify(3, timeout=5)
    assert (note.id, note.count) == (3, 1), note
    assert win.local.tolist() == list(range(8))
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"mpi4py", "torch"}, loaded
print("the wheel works with numpy alone:", rma.__file__.rpartition("/site-packages/")[2])
PYTHON
"$work/venv/bin/python" -m hixl_rma info >"$work/info.txt"
"$work/venv/bin/hixl-rma" info >/dev/null
head -n 5 "$work/info.txt"
unzip=$("$python" -m zipfile -l "$(ls "$work"/*.whl)")
case $unzip in
*native/* | *tests/*) echo "the wheel holds sources: $unzip" >&2; exit 1 ;;
esac

# SPDX-License-Identifier: Apache-2.0
"""A window of one rank with the installed package and numpy alone; wheel.py runs it."""

import sys
import sysconfig
from pathlib import Path

import numpy as np

import hixl_rma as rma

installed = Path(rma.__file__).is_relative_to(sysconfig.get_path("purelib"))
assert installed, f"imported from {rma.__file__}"
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
print("the wheel works with numpy alone")

# SPDX-License-Identifier: Apache-2.0
"""Imported before numpy: one thread of linear algebra in each rank.

Two ranks share the host, and a sum is the same in every bit only when it is always split alike.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

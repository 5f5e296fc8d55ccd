# SPDX-License-Identifier: Apache-2.0
"""``python -m hixl_rma bench``: windows beside MPI's own and beside what the memory allows.

`catalogue` names the rows and their goals; `worker` measures them as one of two ranks, with the
scenarios in the other modules; `command` starts the ranks, brings the results of several MPI
libraries together and reports.
"""

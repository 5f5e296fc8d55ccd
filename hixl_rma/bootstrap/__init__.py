# SPDX-License-Identifier: Apache-2.0
"""Bring ranks together before any transport exists.

A bootstrap knows the caller's rank and the number of ranks, and exchanges small pieces of bytes.
There is one over mpi4py and one over Unix sockets for the processes (or threads) of one host;
`resolve` chooses.
"""

from hixl_rma.bootstrap.base import MAX_BYTES, Bootstrap, Deadline
from hixl_rma.bootstrap.choose import resolve
from hixl_rma.bootstrap.local import LocalBootstrap
from hixl_rma.bootstrap.mpi import MpiBootstrap

__all__ = ["MAX_BYTES", "Bootstrap", "Deadline", "LocalBootstrap", "MpiBootstrap", "resolve"]

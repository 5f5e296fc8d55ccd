# SPDX-License-Identifier: Apache-2.0
"""Names for notifications: what a wait reports and what it may be asked for."""

from __future__ import annotations

from typing import Final

from hixl_rma import _native

__all__ = ["ANY", "ANY_SOURCE", "Notification"]

ANY: Final = -1
"""Any notification id, where one is waited for."""

ANY_SOURCE: Final = -1
"""Any origin rank, where a notification is waited for; as `source` of one: several supplied it."""

Notification = _native.Notification

# SPDX-License-Identifier: Apache-2.0
"""What `pd_generate.py` needs beside its handoff: the model, the cache layout, the summary."""

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hixl_rma/transport.h"

namespace hixl_rma {

/// Shared segments (sealed memfd) of processes on one host, reached by load and store.
/// Errors: Unavailable where memfd or Unix sockets are refused.
Result<std::unique_ptr<Transport>> probe_shm();

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hixl_rma/transport.h"

namespace hixl_rma {

/// Host memory of the caller's own, reached through a shared staging buffer that a thread of its
/// owner serves: for processes that the kernel does not let copy into each other.
/// Errors: Unavailable where memfd, Unix sockets or threads are refused.
Result<std::unique_ptr<Transport>> probe_staged();

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hixl_rma/transport.h"

namespace hixl_rma {

/// Cross-process copy by process_vm_readv and process_vm_writev: any host memory of a process that
/// the kernel lets us trace. Errors: Unavailable with the rule that forbids it.
Result<std::unique_ptr<Transport>> probe_cma();

}  // namespace hixl_rma

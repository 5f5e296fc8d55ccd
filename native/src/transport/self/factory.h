// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hixl_rma/transport.h"

namespace hixl_rma {

/// Memory of this very process, reached by load and store.
Result<std::unique_ptr<Transport>> probe_self();

}  // namespace hixl_rma

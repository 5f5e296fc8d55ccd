// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace hixl_rma {

/// Copies past the cache, by the widest streaming stores of this processor. The ranges must not
/// overlap. The bytes are ordered before whatever this core stores afterwards: streaming stores are
/// not by themselves, and a release store does not order them either.
void stream_copy(std::byte* to, const std::byte* from, std::size_t nbytes);

/// What the processor offers: "avx512", "avx2", "sse2", "neon" or "none".
const char* stream_copy_name();

}  // namespace hixl_rma

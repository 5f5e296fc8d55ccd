// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hixl_rma/memory.h"
#include "hixl_rma/status.h"
#include "transport/common/process_facts.h"

namespace hixl_rma {

/// Who can ask a SegmentServer of this process: abstract sockets belong to a network namespace, the
/// kernel to its boot, and a segment is handed to the same user alone.
Bytes host_address(const ProcessFacts& facts);

/// Whether the peer with that address can. Errors: Unavailable with the reason; `transport` is what
/// the sentence calls the speaker.
Status host_reach(const ProcessFacts& facts, ByteSpan peer_address, std::string_view transport);

}  // namespace hixl_rma

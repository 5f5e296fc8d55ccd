// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "hixl_rma/status.h"
#include "hixl_rma/transport.h"

namespace hixl_rma {

enum class CopyDirection : std::uint8_t { kToPeer, kFromPeer };

/// Copies every piece between this process and `pid`; a piece's offset counts from `base` there.
/// One system call takes up to 1024 pieces; short counts are continued where they stopped.
/// Errors: PeerLost (the process is gone), AccessDenied (a page there is absent or refuses the
/// access; text says how many bytes were done), Unavailable (the kernel refuses us altogether).
Status copy_across(pid_t pid, CopyDirection direction, std::uint64_t base,
                   std::span<const Piece> pieces);

}  // namespace hixl_rma

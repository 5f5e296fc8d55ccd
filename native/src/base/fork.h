// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hixl_rma {

/// How many forks lie between this process and the one that loaded the library: an object made
/// under another number belongs to a parent, and a child must not touch it.
int fork_generation();

}  // namespace hixl_rma

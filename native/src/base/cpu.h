// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hixl_rma {

/// Tells the core that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hixl_rma

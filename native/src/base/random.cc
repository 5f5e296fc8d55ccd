// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace hixl_rma {
namespace {

// The kernel's generator cannot fail for 256 bytes or less once it is seeded, but for a signal.
void fill(void* bytes, std::size_t size) {
  while (getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) {
    if (errno != EINTR) std::abort();
  }
}

}  // namespace

Token random_token() {
  Token token;
  fill(token.data(), token.size());
  return token;
}

std::uint64_t random_word() {
  std::uint64_t word = 0;
  fill(&word, sizeof word);
  return word;
}

}  // namespace hixl_rma

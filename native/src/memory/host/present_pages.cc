// SPDX-License-Identifier: Apache-2.0
#include "memory/host/present_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace hixl_rma {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers do not have

}  // namespace

int make_present(std::byte* first, std::size_t nbytes) {
  return nbytes == 0 || madvise(first, nbytes, kPopulateWrite) == 0 ? 0 : errno;
}

void ask_for_huge_pages(std::byte* first, std::size_t nbytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  if (nbytes >= kHugePage) madvise(first, nbytes, MADV_HUGEPAGE);
}

PresentPages::PresentPages(std::byte* data, std::size_t nbytes)
    : data_(data),
      nbytes_(nbytes),
      words_(std::make_unique<std::atomic<std::uint64_t>[]>(nbytes / (kPartBytes * kPartsPerWord) +
                                                            1)) {}

bool PresentPages::is_present(std::size_t part) const {
  const std::uint64_t word = words_[part / kPartsPerWord].load(std::memory_order_relaxed);
  return (word >> (part % kPartsPerWord) & 1) != 0;
}

void PresentPages::set_present(std::size_t part) {
  words_[part / kPartsPerWord].fetch_or(std::uint64_t{1} << (part % kPartsPerWord),
                                        std::memory_order_relaxed);
}

// A run of missing parts is one call. Parts are marked also where the kernel could not: asking
// again would only cost again.
void PresentPages::ensure(std::size_t offset, std::size_t nbytes) {
  if (nbytes == 0) return;
  const std::size_t end = (offset + nbytes - 1) / kPartBytes + 1;
  for (std::size_t part = offset / kPartBytes; part < end; ++part) {
    if (is_present(part)) [[likely]]
      continue;
    std::call_once(asked_, [this] { ask_for_huge_pages(data_, nbytes_); });
    const std::size_t first = part;
    while (part < end && !is_present(part)) set_present(part++);
    const std::size_t from = first * kPartBytes;
    make_present(data_ + from, std::min(part * kPartBytes, nbytes_) - from);
  }
}

}  // namespace hixl_rma

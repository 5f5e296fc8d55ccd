// SPDX-License-Identifier: Apache-2.0
#include "memory/host/present_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/descriptor.h"

namespace hixl_rma {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers do not have

// Advice may be taken for a hint, and ignored with success (qemu does): who then believes that
// memory is reserved meets a signal instead of an error. Behind the end of a file it cannot
// succeed.
bool is_understood() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const Descriptor empty(memfd_create("hixl_rma", MFD_CLOEXEC));
  void* beyond = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, empty.get(), 0);
  if (beyond == MAP_FAILED) return false;
  const bool refused = madvise(beyond, page, kPopulateWrite) != 0 && errno == EFAULT;
  munmap(beyond, page);
  return refused;
}

}  // namespace

int make_present(std::byte* first, std::size_t nbytes) {
  static const bool kUnderstood = is_understood();
  if (!kUnderstood) return EINVAL;
  return nbytes == 0 || madvise(first, nbytes, kPopulateWrite) == 0 ? 0 : errno;
}

void ask_for_huge_pages(std::byte* first, std::size_t nbytes) {
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace hixl_rma {

/// Makes every page of a shared mapping present in this process for writing, in one system call; a
/// touch of each would cost a fault a page, many times as long. Whole pages only. Returns 0, or the
/// error: EINVAL where the kernel cannot (Linux before 5.14; the pages come when they are touched),
/// ENOMEM or EFAULT where there is no memory for them.
int make_present(std::byte* first, std::size_t nbytes);

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Asks for huge pages where the system gives them to who does. For memory that will be used whole:
/// one touch of it takes 2 MiB.
void ask_for_huge_pages(std::byte* first, std::size_t nbytes);

/// Which parts of a mapping of a peer's memory have their pages present in this process, so that
/// the first copy there does not meet a fault for each page.
/// Thread: any; two that ask for one part at once both make it present.
class PresentPages {
 public:
  /// Borrows the mapping, which begins at a page.
  PresentPages(std::byte* data, std::size_t nbytes);

  /// Has the pages of [offset, offset + nbytes) present. A few nanoseconds where they are.
  void ensure(std::size_t offset, std::size_t nbytes);

 private:
  /// What is looked at and made present together.
  static constexpr std::size_t kPartBytes = std::size_t{64} * 1024;
  static constexpr std::size_t kPartsPerWord = 64;

  [[nodiscard]] bool is_present(std::size_t part) const;
  void set_present(std::size_t part);

  std::byte* data_;
  std::size_t nbytes_;
  std::once_flag asked_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
#include "memory/host/present_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/host/shared_segment.h"
#include "support/status_assert.h"

namespace hixl_rma::testing {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::size_t kPart = std::size_t{64} * 1024;

/// Pages of this process's own mapping that a touch would not fault for: bit 63 of a pagemap entry.
class PageMap {
 public:
  explicit PageMap(std::span<const std::byte> range)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), entries_(range.size() / page_) {
    FILE* file = fopen("/proc/self/pagemap", "rb");
    const auto first = reinterpret_cast<std::uintptr_t>(range.data()) / page_;
    fseek(file, static_cast<long>(first * 8), SEEK_SET);
    read_ = fread(entries_.data(), 8, entries_.size(), file);
    fclose(file);
  }
  [[nodiscard]] std::size_t present() const {
    std::size_t n = 0;
    for (const std::uint64_t entry : entries_) n += entry >> 63;
    return read_ == entries_.size() ? n * page_ : 0;
  }

 private:
  std::size_t page_;
  std::vector<std::uint64_t> entries_;
  std::size_t read_ = 0;
};

bool supported() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int error = make_present(static_cast<std::byte*>(page), 4096);
  munmap(page, 4096);
  return error == 0;
}

TEST(SharedSegment, what_is_reserved_costs_its_maker_no_faults) {
  if (!supported()) GTEST_SKIP() << "the kernel cannot make pages present in one call";
  const std::array<SharedSegment::Range, 1> reserved = {SharedSegment::Range{kBytes, kBytes}};
  auto segment = SharedSegment::create(3 * kBytes, reserved);
  ASSERT_OK(segment);
  const std::span<std::byte> all(segment.value()->data(), 3 * kBytes);
  EXPECT_EQ(PageMap(all.subspan(kBytes, kBytes)).present(), kBytes);
  EXPECT_EQ(PageMap(all.first(kBytes)).present(), 0U);
  EXPECT_EQ(PageMap(all.last(kBytes)).present(), 0U);
}

TEST(PresentPages, what_a_copy_will_touch_is_present_and_the_rest_is_left_alone) {
  if (!supported()) GTEST_SKIP() << "the kernel cannot make pages present in one call";
  auto segment = SharedSegment::create(kBytes, {});
  ASSERT_OK(segment);
  auto second = SharedSegment::map(segment.value()->fd(), 0, kBytes);
  ASSERT_OK(second);
  std::byte* data = second.value()->data();
  PresentPages pages(data, kBytes);
  const auto present = [&] { return PageMap({data, kBytes}).present(); };
  pages.ensure(0, 0);
  EXPECT_EQ(present(), 0U);
  pages.ensure(3 * kPart - 1, 2);  // the end of a part and the beginning of the next
  EXPECT_EQ(present(), 2 * kPart);
  pages.ensure(2 * kPart, kPart);
  EXPECT_EQ(present(), 2 * kPart);
  pages.ensure(0, kBytes);
  EXPECT_EQ(present(), kBytes);
}

TEST(PresentPages, contents_stay_and_an_end_within_a_part_is_fine) {
  constexpr std::size_t kOdd = kBytes + 4096;
  auto segment = SharedSegment::create(kOdd, {});
  ASSERT_OK(segment);
  segment.value()->data()[kOdd - 1] = std::byte{7};
  auto second = SharedSegment::map(segment.value()->fd(), 0, kOdd);
  ASSERT_OK(second);
  PresentPages pages(second.value()->data(), kOdd);
  pages.ensure(0, kOdd);
  EXPECT_EQ(second.value()->data()[kOdd - 1], std::byte{7});
}

TEST(PresentPages, a_range_without_memory_behind_it_is_an_error_and_no_signal) {
  if (!supported()) GTEST_SKIP() << "the kernel cannot make pages present in one call";
  const int file = memfd_create("short", 0);
  void* beyond = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(beyond, MAP_FAILED);
  EXPECT_EQ(make_present(static_cast<std::byte*>(beyond), 8192), EFAULT);
  munmap(beyond, 8192);
  close(file);
}

}  // namespace
}  // namespace hixl_rma::testing

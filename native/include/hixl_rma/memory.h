// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hixl_rma {

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;

enum class MemoryKind : std::uint8_t { kHost, kCuda, kAscend };

enum class Access : std::uint8_t { kReadOnly, kReadWrite };

class SharedSegment;

/// A range of this process's memory that is to be registered.
/// Borrows: whoever registers keeps the memory alive until the region is gone.
struct MemoryView {
  std::byte* addr = nullptr;
  std::size_t nbytes = 0;
  MemoryKind kind = MemoryKind::kHost;
  /// The shared segment the range lies in, or null for memory of the caller's own.
  const SharedSegment* segment = nullptr;
};

/// True when [offset, offset + length) lies inside size bytes. Written without an addition so that
/// no value can wrap.
constexpr bool in_range(std::uint64_t offset, std::uint64_t length, std::uint64_t size) {
  return offset <= size && length <= size - offset;
}

}  // namespace hixl_rma

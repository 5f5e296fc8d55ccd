// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/descriptor.h"
#include "hixl_rma/memory.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

/// A mapping of a sealed memfd: memory without a name that another process maps once it was handed
/// the descriptor, and that is gone with its last mapping, however the processes end.
/// Owns: the mapping, and the descriptor until close_descriptor().
class SharedSegment {
 public:
  /// A byte range within the segment: offset and length.
  using Range = std::pair<std::size_t, std::size_t>;

  /// Makes a segment; the pages of `reserved` are reserved now, so that touching them later cannot
  /// fail, and present, so that it costs no faults; the others come when they are first touched.
  /// Errors: ResourceExhausted.
  static Result<std::shared_ptr<SharedSegment>> create(std::size_t nbytes,
                                                       std::span<const Range> reserved);

  /// Maps [offset, offset + nbytes) of a descriptor that a peer handed over. Seals and size are
  /// checked first: an unsealed file could shrink under us. `offset` is a multiple of the page
  /// size. Errors: ProtocolMismatch, ResourceExhausted.
  static Result<std::shared_ptr<SharedSegment>> map(int fd, std::size_t offset, std::size_t nbytes);

  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t nbytes() const { return nbytes_; }
  [[nodiscard]] int fd() const { return descriptor_.get(); }
  void close_descriptor() { descriptor_.reset(); }

 private:
  SharedSegment(std::byte* data, std::size_t nbytes, Descriptor descriptor)
      : data_(data), nbytes_(nbytes), descriptor_(std::move(descriptor)) {}

  std::byte* data_;
  std::size_t nbytes_;
  Descriptor descriptor_;
};

/// Rounds up to whole pages; 0 stays 0.
std::size_t round_to_pages(std::size_t nbytes);

}  // namespace hixl_rma

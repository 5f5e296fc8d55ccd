// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hixl_rma/transport.h"
#include "memory/host/copier.h"

namespace hixl_rma {

/// A remote region this process can load from and store to.
class MappedRegion : public RemoteRegion {
 public:
  MappedRegion(std::byte* base, std::uint64_t nbytes, std::shared_ptr<const void> mapping)
      : RemoteRegion(nbytes), base_(base), mapping_(std::move(mapping)) {}

  [[nodiscard]] std::byte* mapped() const override { return base_; }
  [[nodiscard]] std::shared_ptr<const void> mapping() const override { return mapping_; }

 private:
  std::byte* base_;
  std::shared_ptr<const void> mapping_;
};

/// Every verb by loads and stores of the caller's own core; complete when it returns. Serves the
/// transports whose regions are mapped (self, shm).
///
/// NOTE [put then notify, mapped]
/// A put ends before the notify begins; copies end with a store fence on each core that streamed
/// past the cache, and the parts of a second core are joined; the record's first word is stored
/// last, with release order. So whoever loads that word with acquire order sees the data.
class MappedEndpoint final : public Endpoint {
 public:
  explicit MappedEndpoint(std::shared_ptr<Copier> copier = Copier::of_process())
      : copier_(std::move(copier)) {}

  PostResult put(RemoteRegion& region, const Piece& piece, Completion* completion) override;
  PostResult get(RemoteRegion& region, const Piece& piece, Completion* completion) override;
  PostResult put_v(RemoteRegion& region, std::span<const Piece> pieces,
                   Completion* completion) override;
  PostResult get_v(RemoteRegion& region, std::span<const Piece> pieces,
                   Completion* completion) override;
  PostResult flush(FlushScope scope, Completion* completion) override;
  void close(const Status& reason) override;
  PostResult notify(RemoteRegion& region, std::span<const RecordWrite> records,
                    Completion* completion) override;
  PostResult fetch_add(RemoteRegion& region, std::uint64_t offset, std::uint64_t value,
                       std::uint64_t* previous, Completion* completion) override;
  PostResult compare_swap(RemoteRegion& region, std::uint64_t offset, std::uint64_t expected,
                          std::uint64_t desired, std::uint64_t* previous,
                          Completion* completion) override;
  PostResult accumulate(RemoteRegion& region, const Accumulate& operation,
                        Completion* completion) override;
  PostResult swap_element(RemoteRegion& region, const ElementSwap& operation,
                          Completion* completion) override;

 private:
  void copy(std::span<const CopyBlock> blocks);

  std::shared_ptr<Copier> copier_;
};

inline constexpr Capabilities kMappedCapabilities = {
    .any_host_memory = false,
    .control = true,
    .accumulate = true,
    .put_then_notify = true,
    .completes_inline = true,
    .needs_mapped_control = true,
};

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
//
// One of the two sides of a conformance test: an engine that knows the transport under test (and
// shm for what synchronises a region), one registered region, and the connection to the other side.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/doorbell.h"
#include "base/stripe_lock.h"
#include "fakes/fake_transport.h"
#include "hixl_rma/engine.h"
#include "memory/host/shared_segment.h"

namespace hixl_rma::testing {

enum class Place : std::uint8_t { kThread, kProcess };

/// What a conformance test is run for.
struct Trial {
  std::string_view label;
  std::string_view transport;
  Place place = Place::kThread;
  fakes::FakeOptions fake = {};

  [[nodiscard]] bool is_fake() const { return transport == "fake"; }
};

/// What GoogleTest prints for a parameter.
void PrintTo(const Trial& trial, std::ostream* out);

/// What lies in control memory in a window.
struct SyncArea {
  Doorbell doorbell;
  std::array<StripeLock, kStripeCount> stripes;
};

class Side {
 public:
  /// Errors: Unavailable with the reason of the probe when the transport is not viable here.
  static Result<std::unique_ptr<Side>> create(const Trial& trial, std::size_t nbytes,
                                              std::uint32_t holder);
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t nbytes() const { return nbytes_; }
  [[nodiscard]] SyncArea& sync_area() const;
  [[nodiscard]] Engine& engine() const { return *engine_; }

  /// What the other side needs to connect: addresses and keys.
  [[nodiscard]] Bytes introduction() const;
  Status connect(ByteSpan introduction);
  [[nodiscard]] Endpoint& endpoint() const;
  [[nodiscard]] RemoteRegion& remote() const;
  /// No import will come any more.
  void stop_offering();

  /// Posts until the answer is not Again and leaves a Pending operation to `completion`.
  template <class PostOperation>
  Status issue(Completion& completion, PostOperation&& post) {
    for (;;) {
      completion.add();
      const PostResult posted = post(&completion);
      if (posted.state == Post::kPending) return {};
      completion.complete({});
      if (posted.state != Post::kAgain) return posted.status;
      engine_->idle();
    }
  }

  // ---- verbs towards the other side, complete when they return
  Status put(const std::byte* from, std::uint64_t offset, std::size_t nbytes);
  Status get(std::byte* to, std::uint64_t offset, std::size_t nbytes);
  Status put_v(std::span<const Piece> pieces);
  Status get_v(std::span<const Piece> pieces);
  Status flush(FlushScope scope);
  Status notify(const RecordWrite& record);
  Result<std::uint64_t> fetch_add(std::uint64_t offset, std::uint64_t value);
  Result<std::uint64_t> compare_swap(std::uint64_t offset, std::uint64_t expected,
                                     std::uint64_t desired);
  Status accumulate(const Accumulate& operation);
  Status swap_element(const ElementSwap& operation);

 private:
  Side() = default;
  Status open_engine(const Trial& trial);
  Status make_memory(const Trial& trial, std::size_t nbytes, std::uint32_t holder);

  std::vector<TransportEntry> registry_;
  std::shared_ptr<Engine> engine_;
  int tested_ = -1;        // index of the transport under test
  int sync_carrier_ = -1;  // of the one that carries the sync area; -1: the target executes
  std::uint32_t holder_ = 0;
  std::shared_ptr<SharedSegment> sync_segment_;
  std::shared_ptr<SharedSegment> data_segment_;
  std::vector<std::byte> plain_;
  std::byte* data_ = nullptr;
  std::size_t nbytes_ = 0;
  std::unique_ptr<LocalRegion> sync_region_;
  std::unique_ptr<LocalRegion> data_region_;
  std::shared_ptr<Peer> peer_;
  ImportedRegion remote_sync_;
  ImportedRegion remote_data_;
};

}  // namespace hixl_rma::testing

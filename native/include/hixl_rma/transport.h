// SPDX-License-Identifier: Apache-2.0
//
// The contract of a transport: one way to move bytes between two processes. Transports know nothing
// of windows, ranks, epochs, displacement units, Python or MPI; ranges and rights are checked above
// them, once. A new transport implements these four classes and adds one line to the registry.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "hixl_rma/completion.h"
#include "hixl_rma/memory.h"
#include "hixl_rma/reduce.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

struct Doorbell;
struct StripeLock;
class Deadline;
class Patience;

/// Constant after the probe.
struct Capabilities {
  /// Host memory outside a shared segment can be registered.
  bool any_host_memory = false;
  /// fetch_add, compare_swap and notify work on 8-byte aligned words: control memory can use it.
  bool control = false;
  /// accumulate and compare_and_swap of elements are supported.
  bool accumulate = false;
  /// A notify is visible only after every earlier put of the same endpoint without a flush between.
  bool put_then_notify = false;
  /// Every post is Done or Failed when it returns: no completion is ever used.
  bool completes_inline = false;
  /// Origins reach what synchronises a region by the pointers of RegionSync: for data only where
  /// the control memory of the peer is mapped in this process.
  bool needs_mapped_control = false;
  /// An import does not keep the region's memory alive, so only who registered it may import it.
  bool owner_only = false;
};

/// What a region is synchronised with: pointers into control memory mapped in this process. The
/// owner binds them to its MemoryRegion, an origin to its RemoteRegion; who executes an operation
/// uses the set of its own side.
struct RegionSync {
  StripeLock* stripes = nullptr;  ///< lock table of the accumulate family
  std::uint32_t holder = 0;       ///< who this process is in a stripe lock word
  Patience* patience = nullptr;   ///< bounds the waits for stripe locks; null: nothing does
  Doorbell* doorbell = nullptr;   ///< rung after a notify
  /// Memory that may be withdrawn while an origin writes: generation now, the one this import
  /// stands for, and this origin's in-flight word (DESIGN: never write late).
  const std::atomic<std::uint64_t>* generation = nullptr;
  std::uint64_t expected_generation = 0;
  std::atomic<std::uint64_t>* in_flight = nullptr;
};

/// One contiguous run: local bytes and where they belong in the remote region.
struct Piece {
  std::byte* local = nullptr;
  std::uint64_t offset = 0;
  std::size_t nbytes = 0;
};

/// One element-wise accumulate on a contiguous run; result (may be null) receives the old values.
struct Accumulate {
  DataType type;
  ReduceOp op;
  const std::byte* operand = nullptr;
  std::byte* result = nullptr;
  std::uint64_t offset = 0;
  std::size_t count = 0;
};

/// Compare-and-swap of one element of an integer or bool type.
struct ElementSwap {
  DataType type;
  const std::byte* compare = nullptr;
  const std::byte* desired = nullptr;
  std::byte* result = nullptr;
  std::uint64_t offset = 0;
};

/// Up to four aligned words that a notify stores, the first of them last: whoever loads it with
/// acquire order sees the others.
struct RecordWrite {
  std::uint64_t offset = 0;
  std::uint32_t words = 0;
  std::array<std::uint64_t, 4> value{};
};

enum class FlushScope : std::uint8_t { kLocal, kRemote };

/// Answer of a post. Done: complete now, the completion is untouched. Pending: the completion fires
/// once, later, from progress() or close(). Again: nothing happened, make progress and retry.
/// Failed: nothing will fire; status says why.
enum class Post : std::uint8_t { kDone, kPending, kAgain, kFailed };

struct [[nodiscard]] PostResult {
  PostResult(Post post) : state(post) {}                                        // NOLINT
  PostResult(Status error) : state(Post::kFailed), status(std::move(error)) {}  // NOLINT
  Post state;
  Status status;
};

/// A registered range of this process.
class MemoryRegion {
 public:
  MemoryRegion() = default;
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;
  /// Deregisters.
  virtual ~MemoryRegion() = default;
  /// What a peer needs to import the region; at most kMaxKeyBytes.
  [[nodiscard]] virtual Bytes packed_key() const = 0;
  /// No further import will come: gives back what only importing needs (descriptors, threads).
  virtual void stop_offering() {}
  virtual void bind(const RegionSync& sync) { sync_ = sync; }

 protected:
  RegionSync sync_;
};

inline constexpr std::size_t kMaxKeyBytes = 512;

/// A peer's region as this process sees it.
class RemoteRegion {
 public:
  explicit RemoteRegion(std::uint64_t nbytes) : nbytes_(nbytes) {}
  RemoteRegion(const RemoteRegion&) = delete;
  RemoteRegion& operator=(const RemoteRegion&) = delete;
  virtual ~RemoteRegion() = default;

  [[nodiscard]] std::uint64_t nbytes() const { return nbytes_; }
  /// Address of the region in this process, or null when it is not mapped.
  [[nodiscard]] virtual std::byte* mapped() const { return nullptr; }
  /// Called before a copy of a few pages and more within a mapped region: has them present.
  virtual void prepare_pages(std::uint64_t /*offset*/, std::size_t /*nbytes*/) {}
  /// Keeps the mapping alive, for views that outlive the region. Null when not mapped.
  [[nodiscard]] virtual std::shared_ptr<const void> mapping() const { return nullptr; }

  void bind(const RegionSync& sync) { sync_ = sync; }
  [[nodiscard]] const RegionSync& sync() const { return sync_; }

 private:
  std::uint64_t nbytes_;
  RegionSync sync_;
};

/// One connected peer on one transport.
/// Thread: posts of one endpoint may come from several threads at once; posts that must be ordered
/// are issued by one thread or ordered by the caller.
/// Borrows: local memory until the operation is Done, its completion fired or the endpoint closed.
class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default;

  // ---- required -----------------------------------------------------------------------------
  virtual PostResult put(RemoteRegion& region, const Piece& piece, Completion* completion) = 0;
  virtual PostResult get(RemoteRegion& region, const Piece& piece, Completion* completion) = 0;
  /// A list of pieces is one post, so that a transport can chain or vector them. A failed list may
  /// have moved some pieces.
  virtual PostResult put_v(RemoteRegion& region, std::span<const Piece> pieces,
                           Completion* completion) = 0;
  virtual PostResult get_v(RemoteRegion& region, std::span<const Piece> pieces,
                           Completion* completion) = 0;
  /// Order: everything posted to this peer on this endpoint before is complete (kRemote) or its
  /// local memory reusable (kLocal) when this completes.
  virtual PostResult flush(FlushScope scope, Completion* completion) = 0;
  /// Every outstanding completion fires once with Canceled: with the reason itself where that is
  /// one. Idempotent.
  virtual void close(const Status& reason) = 0;

  // ---- needed when Capabilities::control ----------------------------------------------------
  /// Stores the records in order and rings the region's doorbell.
  /// Order: visible at the target only after every earlier put and accumulate of this endpoint; an
  /// operation that failed since the last flush fails the notify, too.
  virtual PostResult notify(RemoteRegion& region, std::span<const RecordWrite> records,
                            Completion* completion);
  /// Adds to an 8-byte word; *previous receives the old value by completion.
  virtual PostResult fetch_add(RemoteRegion& region, std::uint64_t offset, std::uint64_t value,
                               std::uint64_t* previous, Completion* completion);
  virtual PostResult compare_swap(RemoteRegion& region, std::uint64_t offset,
                                  std::uint64_t expected, std::uint64_t desired,
                                  std::uint64_t* previous, Completion* completion);

  // ---- needed when Capabilities::accumulate -------------------------------------------------
  /// Element-wise atomic against every other accumulate and swap on the region, whoever executes
  /// it.
  virtual PostResult accumulate(RemoteRegion& region, const Accumulate& operation,
                                Completion* completion);
  virtual PostResult swap_element(RemoteRegion& region, const ElementSwap& operation,
                                  Completion* completion);
};

/// One per process and kind; owns descriptors, queues and threads. Outlives its endpoints and
/// regions (they share ownership of what they need).
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual Capabilities capabilities() const = 0;
  /// What peers need to judge reachability and to connect.
  [[nodiscard]] virtual Bytes address() const = 0;
  /// Pure and symmetric, no IO. Ok, or Unavailable with the reason.
  [[nodiscard]] virtual Status can_reach(ByteSpan peer_address) const = 0;
  /// Tries the real thing on the peer. Errors: Unavailable with a sentence a user can act on.
  virtual Result<std::unique_ptr<Endpoint>> connect(ByteSpan peer_address) = 0;
  /// Errors: Unsupported when this kind of memory is not for this transport.
  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(const MemoryView& view,
                                                                Access access) = 0;
  /// Blocks until the peer handed the region over, at most until the deadline.
  virtual Result<std::unique_ptr<RemoteRegion>> import_region(ByteSpan key,
                                                              const Deadline& deadline) = 0;
  /// Advances outstanding work; returns how many operations or parts of them it moved on, 0 when it
  /// found nothing to do. Never blocks.
  virtual std::size_t progress() { return 0; }
  /// True while progress() has something to do: a waiter must not sleep long.
  [[nodiscard]] virtual bool needs_progress() const { return false; }
};

/// Tries the transport on this process itself. Errors: Unavailable with a sentence to act on.
using TransportProbe = Result<std::unique_ptr<Transport>> (*)();

struct TransportEntry {
  std::string_view name;
  TransportProbe probe;
};

/// Every transport of this build; the order is the order of preference.
std::span<const TransportEntry> transport_registry();

}  // namespace hixl_rma

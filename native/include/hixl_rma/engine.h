// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "hixl_rma/completion.h"
#include "hixl_rma/memory.h"
#include "hixl_rma/status.h"
#include "hixl_rma/transport.h"

namespace hixl_rma {

class Deadline;
class PeerProcess;
class ProcessBeacon;
class WorkThread;

/// One bit for each entry of the registry, lowest = preferred: the same in every process.
using TransportMask = std::uint32_t;

struct EngineOptions {
  /// Names of the transports data may take; empty allows all.
  std::vector<std::string> data_transports;
  /// What there is to choose from; tests put a fake in.
  std::span<const TransportEntry> registry = transport_registry();
};

/// What the probe of one transport said.
struct TransportReport {
  std::string name;
  bool viable = false;
  std::string reason;
};

/// Another process, with an endpoint on every transport that reaches it.
struct Peer {
  std::vector<std::unique_ptr<Endpoint>> endpoints;  ///< by transport index; null = not reachable
  std::vector<std::string> reasons;                  ///< why not
  std::shared_ptr<PeerProcess> process;              ///< watched for its end
  [[nodiscard]] TransportMask reachable() const;
};

/// A range of this process registered with every transport that takes it.
class LocalRegion {
 public:
  /// What a peer's import_region takes.
  [[nodiscard]] Bytes packed_keys() const;
  void stop_offering();
  void bind(const RegionSync& sync);

 private:
  friend class Engine;
  std::vector<std::unique_ptr<MemoryRegion>> regions_;  ///< by transport index
  std::vector<std::string> names_;
};

/// A peer's region, imported on each transport that could.
struct ImportedRegion {
  std::vector<std::unique_ptr<RemoteRegion>> regions;  ///< by transport index; null = not imported
};

/// Owns the transports of this process and everything about choosing among them.
/// Thread: connect, register and import may be called from any thread, one at a time.
class Engine {
 public:
  /// Probes the registry. Errors: InvalidArgument for an unknown name in data_transports.
  static Result<std::shared_ptr<Engine>> create(const EngineOptions& options);

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  /// What every peer needs to connect.
  [[nodiscard]] Bytes address() const;
  /// Connects to every transport of the peer that both sides have. Errors: ProtocolMismatch,
  /// PeerLost when its process has ended.
  /// `own` is true when the peer's memory is the caller's own.
  Result<std::shared_ptr<Peer>> connect(ByteSpan address, bool own);
  /// Errors: Unavailable when no transport in the mask takes the memory, else the first hard error.
  Result<std::unique_ptr<LocalRegion>> register_memory(const MemoryView& view, Access access,
                                                       TransportMask mask);
  /// The transports that the owner of these keys has registered its memory with.
  [[nodiscard]] Result<TransportMask> offered(ByteSpan keys) const;
  /// Imports on every transport in the mask that the peer is connected by and has a key for.
  Result<ImportedRegion> import_region(const Peer& peer, ByteSpan keys, TransportMask mask,
                                       const Deadline& deadline);

  /// Transports data may take by the options, viable or not; `self` is always among them.
  [[nodiscard]] TransportMask data_mask() const { return data_mask_; }
  /// Transports that can carry control memory: the allowed ones first, see control_choice.
  [[nodiscard]] TransportMask control_mask() const { return control_mask_; }
  /// Transports whose data access needs the peer's control memory mapped here.
  [[nodiscard]] TransportMask mapped_control_mask() const { return mapped_control_mask_; }
  /// The transport that control memory takes among `usable`: an allowed one where there is one,
  /// else any (cma carries data only). -1 when there is none.
  [[nodiscard]] int control_choice(TransportMask usable) const;
  /// The transport that data takes among `usable`; -1 when there is none.
  [[nodiscard]] int data_choice(TransportMask usable) const;

  [[nodiscard]] std::string_view transport_name(int index) const;
  [[nodiscard]] Capabilities capabilities(int index) const;
  [[nodiscard]] const std::vector<TransportReport>& reports() const { return reports_; }

  std::size_t progress();
  [[nodiscard]] bool needs_progress() const;

  /// Posts until the answer is not Again, then waits for it. The one retry loop there is.
  /// With a deadline, `memory` is what the operation works on: it may have to outlive the call.
  /// Errors: Timeout when it was posted and is not complete: it may be carried out later.
  template <class PostOperation>
  Status run(PostOperation&& post, const Deadline* deadline = nullptr,
             std::shared_ptr<void> memory = nullptr) {
    auto running = std::make_unique<Running>();
    running->memory = std::move(memory);
    for (;;) {
      running->completion.add();
      const PostResult posted = post(&running->completion);
      if (posted.state == Post::kPending) return wait_for(std::move(running), deadline);
      running->completion.complete({});
      if (posted.state == Post::kDone) return {};
      if (posted.state == Post::kFailed) return posted.status;
      if (late(deadline)) return unanswered();
      idle();
    }
  }

  /// One round of progress; gives the core away when nothing moved.
  void idle();

  /// Does the work on the engine's own thread, behind what it was given before; where no thread can
  /// be had, on this one, at once.
  void do_behind(const std::function<void()>& work);

 private:
  /// An operation of run(). One that nobody waits for any more lives on until it completes.
  struct Running {
    Completion completion;
    std::shared_ptr<void> memory;
  };

  Engine();
  Status wait_for(std::unique_ptr<Running> running, const Deadline* deadline);
  static bool late(const Deadline* deadline);
  static Status unanswered();

  std::shared_ptr<ProcessBeacon> beacon_;
  std::mutex abandoned_mutex_;
  std::vector<std::unique_ptr<Running>> abandoned_;
  std::vector<std::unique_ptr<Transport>> transports_;  ///< as in the registry; null = not viable
  std::vector<TransportReport> reports_;                ///< all of the registry
  TransportMask data_mask_ = 0;
  TransportMask control_mask_ = 0;
  TransportMask mapped_control_mask_ = 0;
  TransportMask owner_only_mask_ = 0;
  std::unique_ptr<WorkThread> copies_;
};

}  // namespace hixl_rma

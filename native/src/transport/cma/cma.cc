// SPDX-License-Identifier: Apache-2.0
//
// Cross-process copy. Whether the kernel allows it is never inferred, always tried: at connect this
// side reads the peer's cookie and writes a word beside it. The peer does the same to us, and the
// window uses cma only where both succeeded.
//
// One endpoint has one in-flight word in the target's control memory, so its copies are serialised:
// two threads copying through one word would hide each other from an owner who withdraws memory. A
// core that helps with a copy is joined before the word is cleared.
#include <array>
#include <memory>
#include <mutex>
#include <system_error>

#include "base/wire.h"
#include "transport/cma/factory.h"
#include "transport/cma/in_flight.h"
#include "transport/cma/process_copier.h"
#include "transport/cma/process_copy.h"
#include "transport/common/process_facts.h"
#include "transport/common/staged_operand.h"
#include "transport/common/stripes.h"

namespace hixl_rma {
namespace {

constexpr std::uint32_t kWireVersion = 1;

// What peers read and write to prove that copies work both ways.
struct Cookie {
  std::uint64_t readable = random_word();
  std::uint64_t writable = 0;
};

std::uint64_t address_of(const void* pointer) {
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer));
}

class CmaRegion final : public MemoryRegion {
 public:
  explicit CmaRegion(const MemoryView& view) : view_(view) {}
  [[nodiscard]] Bytes packed_key() const override {
    return WireWriter()
        .number(address_of(view_.addr))
        .number(static_cast<std::uint64_t>(view_.nbytes))
        .take();
  }

 private:
  MemoryView view_;
};

class CmaRemoteRegion final : public RemoteRegion {
 public:
  CmaRemoteRegion(std::uint64_t base, std::uint64_t nbytes) : RemoteRegion(nbytes), base_(base) {}
  [[nodiscard]] std::uint64_t base() const { return base_; }
  std::mutex& mutex() { return mutex_; }

 private:
  std::uint64_t base_;
  std::mutex mutex_;
};

class CmaEndpoint final : public Endpoint {
 public:
  CmaEndpoint(pid_t pid, std::shared_ptr<ProcessCopier> copier)
      : pid_(pid), copier_(std::move(copier)) {}

  PostResult put(RemoteRegion& region, const Piece& piece, Completion*) override {
    return move(region, CopyDirection::kToPeer, std::span(&piece, 1));
  }
  PostResult get(RemoteRegion& region, const Piece& piece, Completion*) override {
    return move(region, CopyDirection::kFromPeer, std::span(&piece, 1));
  }
  PostResult put_v(RemoteRegion& region, std::span<const Piece> pieces, Completion*) override {
    return move(region, CopyDirection::kToPeer, pieces);
  }
  PostResult get_v(RemoteRegion& region, std::span<const Piece> pieces, Completion*) override {
    return move(region, CopyDirection::kFromPeer, pieces);
  }
  PostResult flush(FlushScope, Completion*) override { return Post::kDone; }
  void close(const Status&) override {}

  PostResult accumulate(RemoteRegion& region, const Accumulate& operation, Completion*) override;
  PostResult swap_element(RemoteRegion& region, const ElementSwap& operation, Completion*) override;

 private:
  PostResult move(RemoteRegion& region, CopyDirection direction, std::span<const Piece> pieces);
  Status read(RemoteRegion& region, std::byte* to, std::uint64_t offset, std::size_t nbytes);
  Status write(RemoteRegion& region, std::byte* from, std::uint64_t offset, std::size_t nbytes);

  pid_t pid_;
  std::shared_ptr<ProcessCopier> copier_;
};

Status withdrawn() {
  return Status::error(StatusCode::kStale, "the target has withdrawn the memory");
}

PostResult CmaEndpoint::move(RemoteRegion& region, CopyDirection direction,
                             std::span<const Piece> pieces) {
  auto& remote = static_cast<CmaRemoteRegion&>(region);
  std::unique_lock lock(remote.mutex(), std::defer_lock);
  if (Status status = lock_with(region.sync().patience, lock); !status.ok()) return status;
  const InFlight in_flight(region.sync());
  if (!in_flight.current()) return withdrawn();
  if (Status status = copier_->copy(pid_, direction, remote.base(), pieces); !status.ok()) {
    return status;
  }
  return Post::kDone;
}

Status CmaEndpoint::read(RemoteRegion& region, std::byte* to, std::uint64_t offset,
                         std::size_t nbytes) {
  const Piece piece{to, offset, nbytes};
  return copy_across(pid_, CopyDirection::kFromPeer, static_cast<CmaRemoteRegion&>(region).base(),
                     std::span(&piece, 1));
}

Status CmaEndpoint::write(RemoteRegion& region, std::byte* from, std::uint64_t offset,
                          std::size_t nbytes) {
  const Piece piece{from, offset, nbytes};
  return copy_across(pid_, CopyDirection::kToPeer, static_cast<CmaRemoteRegion&>(region).base(),
                     std::span(&piece, 1));
}

// Read, combine here, write back, one group of stripes at a time under their locks.
PostResult CmaEndpoint::accumulate(RemoteRegion& region, const Accumulate& operation, Completion*) {
  const std::size_t element = size_of(operation.type);
  const ReduceFunction apply =
      reduce_function(operation.type, operation.op, operation.count * element);
  if (apply == nullptr) return Status::error(StatusCode::kInvalidType, "no such reduction");
  std::unique_lock lock(static_cast<CmaRemoteRegion&>(region).mutex(), std::defer_lock);
  if (Status locked = lock_with(region.sync().patience, lock); !locked.ok()) return locked;
  const InFlight in_flight(region.sync());
  if (!in_flight.current()) return withdrawn();
  StripeScratch scratch;
  StagedOperand operand(operation);
  std::uint64_t offset = operation.offset;
  for (std::size_t done = 0; done < operation.count;) {
    const std::size_t n = elements_in_group(offset, element, operation.count - done);
    const StripeGuard guard(stripe_user(region.sync()), offset, n * element);
    if (!guard.locked()) return guard.failure();
    std::byte* values = scratch.of(n * element);
    const std::byte* with = operand.at(done * element, n * element);
    Status status = read(region, values, offset, n * element);
    if (status.ok() && operation.result != nullptr) {
      std::memcpy(operation.result + done * element, values, n * element);
    }
    if (status.ok() && operation.op != ReduceOp::kNoOp) {
      apply(values, with, n);
      status = write(region, values, offset, n * element);
    }
    if (!status.ok()) return status;
    done += n;
    offset += n * element;
  }
  return Post::kDone;
}

PostResult CmaEndpoint::swap_element(RemoteRegion& region, const ElementSwap& operation,
                                     Completion*) {
  const std::size_t element = size_of(operation.type);
  std::unique_lock lock(static_cast<CmaRemoteRegion&>(region).mutex(), std::defer_lock);
  if (Status locked = lock_with(region.sync().patience, lock); !locked.ok()) return locked;
  const InFlight in_flight(region.sync());
  if (!in_flight.current()) return withdrawn();
  const StripeGuard guard(stripe_user(region.sync()), operation.offset, element);
  if (!guard.locked()) return guard.failure();
  alignas(16) std::array<std::byte, 16> value{};
  Status status = read(region, value.data(), operation.offset, element);
  if (status.ok() && compare_and_swap(operation.type, value.data(), operation.compare,
                                      operation.desired, operation.result)) {
    status = write(region, value.data(), operation.offset, element);
  }
  if (!status.ok()) return status;
  return Post::kDone;
}

// A peer's address, read with every check.
struct CmaAddress {
  std::string boot_id;
  std::uint64_t pid_namespace = 0;
  std::uint64_t uid = 0;
  std::uint64_t pid = 0;
  std::uint64_t start_time = 0;
  std::uint64_t cookie = 0;
  std::uint64_t cookie_value = 0;

  static Result<CmaAddress> parse(ByteSpan bytes) {
    WireReader reader(bytes);
    CmaAddress address;
    const auto version = reader.number<std::uint32_t>();
    address.boot_id = reader.text();
    address.pid_namespace = reader.number<std::uint64_t>();
    address.uid = reader.number<std::uint64_t>();
    address.pid = reader.number<std::uint64_t>();
    address.start_time = reader.number<std::uint64_t>();
    address.cookie = reader.number<std::uint64_t>();
    address.cookie_value = reader.number<std::uint64_t>();
    if (!reader.finished() || version != kWireVersion) {
      return Status::error(StatusCode::kUnavailable, "the peer speaks another version of cma");
    }
    return address;
  }
};

class CmaTransport final : public Transport {
 public:
  [[nodiscard]] std::string_view name() const override { return "cma"; }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.any_host_memory = true,
            .control = false,
            .accumulate = true,
            .put_then_notify = false,
            .completes_inline = true,
            .needs_mapped_control = true};
  }

  [[nodiscard]] Bytes address() const override {
    return WireWriter()
        .number(kWireVersion)
        .text(facts_.boot_id)
        .number(facts_.pid_namespace)
        .number(facts_.uid)
        .number(facts_.pid)
        .number(facts_.start_time)
        .number(address_of(cookie_.get()))
        .number(cookie_->readable)
        .take();
  }

  // ptrace(2) lists what the kernel asks for; what can be compared is compared here, the rest
  // (Yama, seccomp, capabilities, dumpable) shows in connect.
  [[nodiscard]] Status can_reach(ByteSpan peer_address) const override {
    auto peer = CmaAddress::parse(peer_address);
    if (!peer.ok()) return peer.status();
    if (peer.value().boot_id != facts_.boot_id) {
      return Status::error(StatusCode::kUnavailable, "the peer runs on another host");
    }
    if (peer.value().pid_namespace != facts_.pid_namespace) {
      return Status::error(StatusCode::kUnavailable, "the peer lives in another PID namespace");
    }
    if (peer.value().uid != facts_.uid) {
      return Status::error(StatusCode::kUnavailable, "the peer belongs to another user");
    }
    return {};
  }

  Result<std::unique_ptr<Endpoint>> connect(ByteSpan peer_address) override {
    auto parsed = CmaAddress::parse(peer_address);
    if (!parsed.ok()) return parsed.status();
    const CmaAddress& peer = parsed.value();
    const auto pid = static_cast<pid_t>(peer.pid);
    if (start_time_of(peer.pid) != peer.start_time) {
      return Status::error(StatusCode::kPeerLost, "the peer process is gone");
    }
    Cookie seen;
    std::uint64_t word = cookie_->readable;
    const Piece read{reinterpret_cast<std::byte*>(&seen.readable), 0, sizeof word};
    const Piece write{reinterpret_cast<std::byte*>(&word), sizeof word, sizeof word};
    Status status = copy_across(pid, CopyDirection::kFromPeer, peer.cookie, std::span(&read, 1));
    if (status.ok() && seen.readable != peer.cookie_value) {
      status = Status::error(StatusCode::kUnavailable, "read another process than the peer");
    }
    if (status.ok()) {
      status = copy_across(pid, CopyDirection::kToPeer, peer.cookie, std::span(&write, 1));
    }
    if (!status.ok()) {
      std::string text(status.text());
      // Who filters the call and who checks the permission answer differently.
      if (const int error = status.detail().errno_value; error != 0) {
        text += ": " + std::generic_category().message(error);
      }
      return Status::error(
          StatusCode::kUnavailable,
          text + " (see ptrace_scope and capabilities in `python -m hixl_rma info`)");
    }
    return std::unique_ptr<Endpoint>(std::make_unique<CmaEndpoint>(pid, copier_));
  }

  Result<std::unique_ptr<MemoryRegion>> register_memory(const MemoryView& view, Access) override {
    if (view.kind != MemoryKind::kHost) {
      return Status::error(StatusCode::kUnsupported, "cma copies host memory only");
    }
    return std::unique_ptr<MemoryRegion>(std::make_unique<CmaRegion>(view));
  }

  Result<std::unique_ptr<RemoteRegion>> import_region(ByteSpan key, const Deadline&) override {
    WireReader reader(key);
    const auto base = reader.number<std::uint64_t>();
    const auto nbytes = reader.number<std::uint64_t>();
    if (!reader.finished()) return Status::error(StatusCode::kProtocolMismatch, "bad region key");
    return std::unique_ptr<RemoteRegion>(std::make_unique<CmaRemoteRegion>(base, nbytes));
  }

 private:
  ProcessFacts facts_ = process_facts();
  std::unique_ptr<Cookie> cookie_ = std::make_unique<Cookie>();
  std::shared_ptr<ProcessCopier> copier_ = ProcessCopier::of_process();
};

}  // namespace

Result<std::unique_ptr<Transport>> probe_cma() {
  auto transport = std::make_unique<CmaTransport>();
  auto endpoint = transport->connect(transport->address());
  if (!endpoint.ok()) return endpoint.status();
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace hixl_rma

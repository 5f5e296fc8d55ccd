// SPDX-License-Identifier: Apache-2.0
//
// Staged copies. Bytes go through a staging buffer that the owner of a region makes for it and
// hands to whoever imports it; a native thread of the owner does what is asked for there. Nothing
// but shared memory is needed, so it works where the kernel allows no process to touch another.
// The price is a second copy and, for an owner that has nothing to do, a wake-up.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/wire.h"
#include "transport/common/host_reach.h"
#include "transport/common/process_facts.h"
#include "transport/common/segment_server.h"
#include "transport/staged/factory.h"
#include "transport/staged/lane.h"
#include "transport/staged/lane_service.h"

namespace hixl_rma {
namespace {

class StagedRegion final : public MemoryRegion {
 public:
  StagedRegion(std::shared_ptr<LaneService> service, std::shared_ptr<SegmentServer> server,
               const Token& token, std::uint64_t nbytes)
      : service_(std::move(service)),
        server_(std::move(server)),
        token_(token),
        socket_name_(server_->socket_name()),
        nbytes_(nbytes) {
    publish_service(token_, service_);
  }
  StagedRegion(const StagedRegion&) = delete;
  StagedRegion& operator=(const StagedRegion&) = delete;
  ~StagedRegion() override {
    stop_offering();
    if (service_) service_->stop();
  }

  [[nodiscard]] Bytes packed_key() const override {
    return WireWriter().text(socket_name_).bytes(token_).number(nbytes_).take();
  }
  void bind(const RegionSync& sync) override {
    if (service_) service_->bind(sync);
  }
  void stop_offering() override {
    if (!server_) return;
    server_->withdraw(token_);
    server_.reset();
    forget_service(token_);
    if (service_->started()) {
      service_->segment()->close_descriptor();
    } else {
      service_.reset();  // nobody took it
    }
  }

 private:
  std::shared_ptr<LaneService> service_;
  std::shared_ptr<SegmentServer> server_;
  Token token_;
  std::string socket_name_;
  std::uint64_t nbytes_;
};

class StagedRemoteRegion final : public RemoteRegion {
 public:
  StagedRemoteRegion(std::uint64_t nbytes, std::shared_ptr<Lane> lane)
      : RemoteRegion(nbytes), lane_(std::move(lane)) {}
  StagedRemoteRegion(const StagedRemoteRegion&) = delete;
  StagedRemoteRegion& operator=(const StagedRemoteRegion&) = delete;
  ~StagedRemoteRegion() override { lane_->leave(); }
  [[nodiscard]] const std::shared_ptr<Lane>& lane() const { return lane_; }

 private:
  std::shared_ptr<Lane> lane_;
};

/// Order: its posts to one region are carried out in the order in which they were made.
class StagedEndpoint final : public Endpoint {
 public:
  StagedEndpoint() = default;
  StagedEndpoint(const StagedEndpoint&) = delete;
  StagedEndpoint& operator=(const StagedEndpoint&) = delete;
  ~StagedEndpoint() override { close({}); }

  PostResult put(RemoteRegion& region, const Piece& piece, Completion* completion) override {
    return move(LaneOperation::Kind::kPut, region, std::span(&piece, 1), completion);
  }
  PostResult get(RemoteRegion& region, const Piece& piece, Completion* completion) override {
    return move(LaneOperation::Kind::kGet, region, std::span(&piece, 1), completion);
  }
  PostResult put_v(RemoteRegion& region, std::span<const Piece> pieces,
                   Completion* completion) override {
    return move(LaneOperation::Kind::kPut, region, pieces, completion);
  }
  PostResult get_v(RemoteRegion& region, std::span<const Piece> pieces,
                   Completion* completion) override {
    return move(LaneOperation::Kind::kGet, region, pieces, completion);
  }
  PostResult flush(FlushScope scope, Completion* completion) override;
  void close(const Status& reason) override;
  PostResult accumulate(RemoteRegion& region, const Accumulate& operation,
                        Completion* completion) override;
  PostResult swap_element(RemoteRegion& region, const ElementSwap& operation,
                          Completion* completion) override;

 private:
  PostResult move(LaneOperation::Kind kind, RemoteRegion& region, std::span<const Piece> pieces,
                  Completion* completion);
  PostResult post(RemoteRegion& region, LaneOperation operation, Completion* completion);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Lane>> lanes_;  // that were posted to
  bool closed_ = false;
};

Status endpoint_closed() { return Status::error(StatusCode::kClosed, "the endpoint was closed"); }

PostResult StagedEndpoint::post(RemoteRegion& region, LaneOperation operation,
                                Completion* completion) {
  const auto& lane = static_cast<StagedRemoteRegion&>(region).lane();
  operation.completion = completion;
  operation.poster = this;
  std::lock_guard lock(mutex_);  // until it is posted: close() finds it
  if (closed_) return endpoint_closed();
  if (std::ranges::find(lanes_, lane) == lanes_.end()) lanes_.push_back(lane);
  return lane->post(std::move(operation));
}

PostResult StagedEndpoint::move(LaneOperation::Kind kind, RemoteRegion& region,
                                std::span<const Piece> pieces, Completion* completion) {
  LaneOperation operation;
  operation.kind = kind;
  if (pieces.size() == 1) {
    operation.single = pieces.front();
    operation.left = pieces.front().nbytes;
  } else {
    operation.list.reserve(pieces.size());
    for (const Piece& piece : pieces) {
      if (piece.nbytes == 0) continue;
      operation.list.push_back(piece);
      operation.left += piece.nbytes;
    }
  }
  if (operation.left == 0) return Post::kDone;
  return post(region, std::move(operation), completion);
}

PostResult StagedEndpoint::accumulate(RemoteRegion& region, const Accumulate& operation,
                                      Completion* completion) {
  if (!is_supported(operation.type, operation.op)) {
    return Status::error(StatusCode::kInvalidType, "no such reduction");
  }
  LaneOperation posted;
  posted.kind = LaneOperation::Kind::kAccumulate;
  posted.accumulate = operation;
  posted.left = operation.count * size_of(operation.type);
  if (posted.left == 0) return Post::kDone;
  return post(region, std::move(posted), completion);
}

PostResult StagedEndpoint::swap_element(RemoteRegion& region, const ElementSwap& operation,
                                        Completion* completion) {
  if (!is_swappable(operation.type)) {
    return Status::error(StatusCode::kInvalidType, "elements of this type cannot be swapped");
  }
  LaneOperation posted;
  posted.kind = LaneOperation::Kind::kSwap;
  posted.swap = operation;
  return post(region, std::move(posted), completion);
}

PostResult StagedEndpoint::flush(FlushScope scope, Completion* completion) {
  std::lock_guard lock(mutex_);
  if (closed_) return endpoint_closed();
  std::vector<Lane*> waited;
  for (const auto& lane : lanes_) {
    if (lane->holds_up(scope)) waited.push_back(lane.get());
  }
  if (waited.empty()) return Post::kDone;
  // One completion for all of them; the caller has counted one.
  completion->add(static_cast<std::uint32_t>(waited.size()) - 1);
  std::size_t pending = 0;
  PostResult answer = Post::kDone;
  for (Lane* lane : waited) {
    PostResult posted = lane->flush(scope, completion, this);
    if (posted.state == Post::kPending) ++pending;
    if (posted.state == Post::kFailed) answer = std::move(posted);
  }
  // Shares that no lane will complete; one of them is the caller's when none is left waiting.
  for (std::size_t i = std::max<std::size_t>(pending, 1); i < waited.size(); ++i) {
    completion->complete(answer.status);
  }
  return pending == 0 ? std::move(answer) : PostResult(Post::kPending);
}

void StagedEndpoint::close(const Status& reason) {
  std::lock_guard lock(mutex_);
  closed_ = true;
  const Status canceled =
      reason.code() == StatusCode::kCanceled
          ? reason
          : Status::error(StatusCode::kCanceled,
                          reason.ok() ? "the endpoint was closed" : std::string(reason.text()));
  for (const auto& lane : lanes_) lane->close(this, canceled);
  lanes_.clear();
}

class StagedTransport final : public Transport {
 public:
  [[nodiscard]] std::string_view name() const override { return "staged"; }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.any_host_memory = true, .accumulate = true};
  }

  [[nodiscard]] Bytes address() const override { return host_address(facts_); }

  [[nodiscard]] Status can_reach(ByteSpan peer_address) const override {
    return host_reach(facts_, peer_address, name());
  }

  Result<std::unique_ptr<Endpoint>> connect(ByteSpan) override {
    return std::unique_ptr<Endpoint>(std::make_unique<StagedEndpoint>());
  }

  Result<std::unique_ptr<MemoryRegion>> register_memory(const MemoryView& view,
                                                        Access access) override {
    if (view.kind != MemoryKind::kHost) {
      return Status::error(StatusCode::kUnsupported, "staged copies host memory only");
    }
    if (view.segment != nullptr) {
      return Status::error(StatusCode::kUnsupported,
                           "the memory lies in a shared segment, which is mapped by shm");
    }
    auto service = LaneService::create(view, access);
    if (!service.ok()) return service.status();
    LaneService* started = service.value().get();
    auto token =
        server_->offer(service.value()->segment()->fd(), [started] { return started->start(); });
    if (!token.ok()) return token.status();
    return std::unique_ptr<MemoryRegion>(
        std::make_unique<StagedRegion>(service.take(), server_, token.value(), view.nbytes));
  }

  Result<std::unique_ptr<RemoteRegion>> import_region(ByteSpan key,
                                                      const Deadline& deadline) override {
    WireReader reader(key);
    const std::string socket_name = reader.text();
    const ByteSpan token_bytes = reader.bytes();
    const auto nbytes = reader.number<std::uint64_t>();
    Token token{};
    if (!reader.finished() || token_bytes.size() != token.size()) {
      return Status::error(StatusCode::kProtocolMismatch, "bad region key");
    }
    std::ranges::copy(token_bytes, token.begin());
    auto lane = claim_lane(socket_name, token, deadline);
    if (!lane.ok()) return lane.status();
    return std::unique_ptr<RemoteRegion>(std::make_unique<StagedRemoteRegion>(nbytes, lane.take()));
  }

  std::size_t progress() override { return busy_->progress(); }
  [[nodiscard]] bool needs_progress() const override { return busy_->any(); }

 private:
  Result<std::shared_ptr<Lane>> claim_lane(const std::string& socket_name, const Token& token,
                                           const Deadline& deadline) {
    if (const auto service = find_service(token)) {
      if (Status status = service->start(); !status.ok()) return status;
      return Lane::claim(service->segment(), busy_);
    }
    auto descriptor = request_segment(socket_name, token, deadline);
    if (!descriptor.ok()) return descriptor.status();
    return Lane::claim(descriptor.value().get(), busy_);
  }

  ProcessFacts facts_ = process_facts();
  std::shared_ptr<SegmentServer> server_ = std::make_shared<SegmentServer>();
  std::shared_ptr<BusyLanes> busy_ = std::make_shared<BusyLanes>();
};

// A put to ourselves, through lane and thread.
Status try_put(StagedTransport& transport) {
  std::array<std::byte, 8> memory{};
  std::array<std::byte, 8> data{std::byte{1}};
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  auto region = transport.register_memory({memory.data(), memory.size()}, Access::kReadWrite);
  if (!region.ok()) return region.status();
  auto imported = transport.import_region(region.value()->packed_key(), deadline);
  if (!imported.ok()) return imported.status();
  StagedEndpoint endpoint;
  Completion completion;
  completion.add();
  const PostResult posted =
      endpoint.put(*imported.value(), {data.data(), 0, data.size()}, &completion);
  if (posted.state != Post::kPending) return posted.status;
  while (!completion.done() && !deadline.expired()) {
    if (transport.progress() == 0) sched_yield();
  }
  endpoint.close(Status::error(StatusCode::kTimeout, "the service thread did not answer"));
  if (Status status = completion.status(); !status.ok()) return status;
  region.value().reset();  // ends the thread: what it wrote can be looked at
  return memory == data ? Status()
                        : Status::error(StatusCode::kInternal, "a staged byte did not arrive");
}

}  // namespace

Result<std::unique_ptr<Transport>> probe_staged() {
  if (Status status = try_segments(); !status.ok()) return status;
  auto transport = std::make_unique<StagedTransport>();
  if (Status status = try_put(*transport); !status.ok()) {
    return Status::error(StatusCode::kUnavailable, std::string(status.text()));
  }
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
//
// Shared memory. A region lies in a SharedSegment; its key says which socket hands the segment over
// and the token to ask with. An imported region is a mapping of our own, so that nothing a peer
// does later (free, exit, kill) takes the memory away under a load.
#include <algorithm>
#include <memory>

#include "base/wire.h"
#include "memory/host/present_pages.h"
#include "memory/host/shared_segment.h"
#include "transport/common/host_reach.h"
#include "transport/common/mapped_endpoint.h"
#include "transport/common/process_facts.h"
#include "transport/common/segment_server.h"
#include "transport/shm/factory.h"

namespace hixl_rma {
namespace {

class ShmRegion final : public MemoryRegion {
 public:
  ShmRegion(std::shared_ptr<SegmentServer> server, const Token& token, const MemoryView& view)
      : server_(std::move(server)), token_(token), socket_name_(server_->socket_name()) {
    offset_ = static_cast<std::uint64_t>(view.addr - view.segment->data());
    nbytes_ = view.nbytes;
  }
  ~ShmRegion() override { stop_offering(); }
  ShmRegion(const ShmRegion&) = delete;
  ShmRegion& operator=(const ShmRegion&) = delete;

  [[nodiscard]] Bytes packed_key() const override {
    return WireWriter().text(socket_name_).bytes(token_).number(offset_).number(nbytes_).take();
  }

  void stop_offering() override {
    if (server_) server_->withdraw(token_);
    server_.reset();
  }

 private:
  std::shared_ptr<SegmentServer> server_;
  Token token_;
  std::string socket_name_;
  std::uint64_t offset_ = 0;
  std::uint64_t nbytes_ = 0;
};

// A peer's segment, mapped here: its pages are present there, but not in this process.
class ShmRemoteRegion final : public MappedRegion {
 public:
  ShmRemoteRegion(std::uint64_t nbytes, const std::shared_ptr<SharedSegment>& segment)
      : MappedRegion(segment->data(), nbytes, segment),
        pages_(segment->data(), segment->nbytes()) {}

  void prepare_pages(std::uint64_t offset, std::size_t nbytes) override {
    pages_.ensure(offset, nbytes);
  }

 private:
  PresentPages pages_;
};

class ShmTransport final : public Transport {
 public:
  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] Capabilities capabilities() const override { return kMappedCapabilities; }

  [[nodiscard]] Bytes address() const override { return host_address(facts_); }

  [[nodiscard]] Status can_reach(ByteSpan peer_address) const override {
    return host_reach(facts_, peer_address, name());
  }

  Result<std::unique_ptr<Endpoint>> connect(ByteSpan) override {
    return std::unique_ptr<Endpoint>(std::make_unique<MappedEndpoint>(copier_));
  }

  Result<std::unique_ptr<MemoryRegion>> register_memory(const MemoryView& view, Access) override {
    if (view.segment == nullptr) {
      return Status::error(StatusCode::kUnsupported, "the memory does not lie in a shared segment");
    }
    auto token = server_->offer(view.segment->fd());
    if (!token.ok()) return token.status();
    return std::unique_ptr<MemoryRegion>(std::make_unique<ShmRegion>(server_, token.value(), view));
  }

  Result<std::unique_ptr<RemoteRegion>> import_region(ByteSpan key,
                                                      const Deadline& deadline) override {
    WireReader reader(key);
    const std::string socket_name = reader.text();
    const ByteSpan token_bytes = reader.bytes();
    const auto offset = reader.number<std::uint64_t>();
    const auto nbytes = reader.number<std::uint64_t>();
    Token token{};
    if (!reader.finished() || token_bytes.size() != token.size()) {
      return Status::error(StatusCode::kProtocolMismatch, "bad region key");
    }
    std::ranges::copy(token_bytes, token.begin());
    auto descriptor = request_segment(socket_name, token, deadline);
    if (!descriptor.ok()) return descriptor.status();
    auto segment = SharedSegment::map(descriptor.value().get(), offset, round_to_pages(nbytes));
    if (!segment.ok()) return segment.status();
    return std::unique_ptr<RemoteRegion>(
        std::make_unique<ShmRemoteRegion>(nbytes, segment.value()));
  }

 private:
  ProcessFacts facts_ = process_facts();
  std::shared_ptr<Copier> copier_ = Copier::of_process();
  std::shared_ptr<SegmentServer> server_ = std::make_shared<SegmentServer>();
};

}  // namespace

Result<std::unique_ptr<Transport>> probe_shm() {
  if (Status status = try_segments(); !status.ok()) return status;
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>());
}

}  // namespace hixl_rma

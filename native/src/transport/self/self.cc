// SPDX-License-Identifier: Apache-2.0
//
// The transport of a process to itself. A key holds the plain address: it never leaves the process
// in a usable way, because can_reach compares the random identity of the process.
#include <algorithm>
#include <memory>

#include "base/wire.h"
#include "transport/common/mapped_endpoint.h"
#include "transport/common/process_facts.h"
#include "transport/self/factory.h"

namespace hixl_rma {
namespace {

class SelfRegion final : public MemoryRegion {
 public:
  explicit SelfRegion(const MemoryView& view) : view_(view) {}
  [[nodiscard]] Bytes packed_key() const override {
    return WireWriter()
        .number(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(view_.addr)))
        .number(static_cast<std::uint64_t>(view_.nbytes))
        .take();
  }

 private:
  MemoryView view_;
};

class SelfTransport final : public Transport {
 public:
  [[nodiscard]] std::string_view name() const override { return "self"; }

  [[nodiscard]] Capabilities capabilities() const override {
    Capabilities capabilities = kMappedCapabilities;
    capabilities.any_host_memory = true;
    capabilities.owner_only = true;
    return capabilities;
  }

  [[nodiscard]] Bytes address() const override {
    return {facts_.instance.begin(), facts_.instance.end()};
  }

  [[nodiscard]] Status can_reach(ByteSpan peer_address) const override {
    if (std::ranges::equal(peer_address, facts_.instance)) return {};
    return Status::error(StatusCode::kUnavailable, "the peer is another process");
  }

  Result<std::unique_ptr<Endpoint>> connect(ByteSpan) override {
    return std::unique_ptr<Endpoint>(std::make_unique<MappedEndpoint>(copier_));
  }

  Result<std::unique_ptr<MemoryRegion>> register_memory(const MemoryView& view, Access) override {
    return std::unique_ptr<MemoryRegion>(std::make_unique<SelfRegion>(view));
  }

  Result<std::unique_ptr<RemoteRegion>> import_region(ByteSpan key, const Deadline&) override {
    WireReader reader(key);
    const auto address = reader.number<std::uint64_t>();
    const auto nbytes = reader.number<std::uint64_t>();
    if (!reader.finished()) return Status::error(StatusCode::kProtocolMismatch, "bad region key");
    auto* base = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
    return std::unique_ptr<RemoteRegion>(std::make_unique<MappedRegion>(base, nbytes, nullptr));
  }

 private:
  ProcessFacts facts_ = process_facts();
  std::shared_ptr<Copier> copier_ = Copier::of_process();
};

}  // namespace

Result<std::unique_ptr<Transport>> probe_self() {
  return std::unique_ptr<Transport>(std::make_unique<SelfTransport>());
}

}  // namespace hixl_rma

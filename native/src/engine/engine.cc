// SPDX-License-Identifier: Apache-2.0
#include "hixl_rma/engine.h"

#include <sched.h>

#include <algorithm>
#include <bit>

#include "base/deadline.h"
#include "base/wire.h"
#include "base/work_thread.h"
#include "engine/peer_process.h"

namespace hixl_rma {
namespace {

constexpr std::uint32_t kWireVersion = 1;

constexpr TransportMask bit(std::size_t index) { return TransportMask{1} << index; }

int lowest(TransportMask mask) { return mask == 0 ? -1 : std::countr_zero(mask); }

// A list of (transport name, bytes), as addresses and keys travel.
Bytes pack_list(const std::vector<std::pair<std::string, Bytes>>& entries) {
  WireWriter writer;
  writer.number(kWireVersion).number(static_cast<std::uint32_t>(entries.size()));
  for (const auto& [name, bytes] : entries) writer.text(name).bytes(bytes);
  return writer.take();
}

Result<std::vector<std::pair<std::string, Bytes>>> unpack_list(ByteSpan packed) {
  WireReader reader(packed);
  const auto version = reader.number<std::uint32_t>();
  const auto count = reader.number<std::uint32_t>();
  std::vector<std::pair<std::string, Bytes>> entries;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.text();
    const ByteSpan bytes = reader.bytes();
    entries.emplace_back(std::move(name), Bytes(bytes.begin(), bytes.end()));
  }
  if (version != kWireVersion) {
    return Status::error(StatusCode::kProtocolMismatch, "the peer's address has wire version " +
                                                            std::to_string(version) + ", ours is " +
                                                            std::to_string(kWireVersion));
  }
  if (!reader.finished()) {
    return Status::error(StatusCode::kProtocolMismatch, "the peer's address is damaged");
  }
  return entries;
}

}  // namespace

TransportMask Peer::reachable() const {
  TransportMask mask = 0;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i]) mask |= bit(i);
  }
  return mask;
}

Bytes LocalRegion::packed_keys() const {
  std::vector<std::pair<std::string, Bytes>> entries;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    if (regions_[i]) entries.emplace_back(names_[i], regions_[i]->packed_key());
  }
  return pack_list(entries);
}

void LocalRegion::stop_offering() {
  for (const auto& region : regions_) {
    if (region) region->stop_offering();
  }
}

void LocalRegion::bind(const RegionSync& sync) {
  for (const auto& region : regions_) {
    if (region) region->bind(sync);
  }
}

Engine::Engine()
    : beacon_(ProcessBeacon::of_process()), copies_(std::make_unique<WorkThread>("hixl-copy")) {}

Engine::~Engine() = default;

Result<std::shared_ptr<Engine>> Engine::create(const EngineOptions& options) {
  for (const std::string& name : options.data_transports) {
    const bool known = std::ranges::any_of(
        options.registry, [&](const TransportEntry& entry) { return entry.name == name; });
    if (!known) {
      std::string names;
      for (const TransportEntry& entry : options.registry) names.append(" ").append(entry.name);
      return Status::error(StatusCode::kInvalidArgument,
                           "no transport is called '" + name + "'; there are:" + names);
    }
  }
  std::shared_ptr<Engine> engine(new Engine);
  engine->reports_.reserve(options.registry.size());
  engine->transports_.reserve(options.registry.size());
  for (const TransportEntry& entry : options.registry) {
    auto probed = entry.probe();
    engine->reports_.push_back({std::string(entry.name), probed.ok(),
                                probed.ok() ? "" : std::string(probed.status().text())});
    const std::size_t index = engine->transports_.size();
    const auto& allowed = options.data_transports;
    if (allowed.empty() || entry.name == "self" ||
        std::ranges::find(allowed, entry.name) != allowed.end()) {
      engine->data_mask_ |= bit(index);
    }
    if (!probed.ok()) {
      engine->transports_.push_back(nullptr);
      continue;
    }
    const Capabilities capabilities = probed.value()->capabilities();
    if (capabilities.control) engine->control_mask_ |= bit(index);
    if (capabilities.needs_mapped_control) engine->mapped_control_mask_ |= bit(index);
    if (capabilities.owner_only) engine->owner_only_mask_ |= bit(index);
    engine->transports_.push_back(probed.take());
  }
  return engine;
}

Bytes Engine::address() const {
  std::vector<std::pair<std::string, Bytes>> entries;
  for (const auto& transport : transports_) {
    if (transport) entries.emplace_back(transport->name(), transport->address());
  }
  return WireWriter().bytes(beacon_->identity()).bytes(pack_list(entries)).take();
}

Result<std::shared_ptr<Peer>> Engine::connect(ByteSpan address, bool own) {
  WireReader reader(address);
  const ByteSpan identity = reader.bytes();
  const ByteSpan transports = reader.bytes();
  if (!reader.finished()) {
    return Status::error(StatusCode::kProtocolMismatch, "the peer's address is damaged");
  }
  auto entries = unpack_list(transports);
  if (!entries.ok()) return entries.status();
  auto process = PeerProcess::watch(identity);
  if (!process.ok()) return process.status();
  auto peer = std::make_shared<Peer>();
  peer->process = process.take();
  peer->endpoints.reserve(transports_.size());
  peer->reasons.reserve(transports_.size());
  for (const auto& transport : transports_) {
    std::unique_ptr<Endpoint> endpoint;
    std::string reason = transport ? "not viable at the peer" : "not viable here";
    for (const auto& [name, bytes] : entries.value()) {
      if (!transport || name != transport->name()) continue;
      if (!own && (owner_only_mask_ & bit(peer->endpoints.size())) != 0) {
        reason = "for a rank's own memory alone";
        continue;
      }
      if (Status reachable = transport->can_reach(bytes); !reachable.ok()) {
        reason = reachable.text();
        continue;
      }
      auto connected = transport->connect(bytes);
      if (connected.ok()) {
        endpoint = connected.take();
        reason.clear();
      } else {
        reason = connected.status().text();
      }
    }
    peer->endpoints.push_back(std::move(endpoint));
    peer->reasons.push_back(std::move(reason));
  }
  return peer;
}

Result<std::unique_ptr<LocalRegion>> Engine::register_memory(const MemoryView& view, Access access,
                                                             TransportMask mask) {
  auto local = std::make_unique<LocalRegion>();
  local->regions_.resize(transports_.size());
  local->names_.reserve(transports_.size());
  std::string reasons;
  bool any = false;
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    local->names_.push_back(reports_[i].name);
    if (!transports_[i] || (mask & bit(i)) == 0) continue;
    auto region = transports_[i]->register_memory(view, access);
    if (region.ok()) {
      local->regions_[i] = region.take();
      any = true;
    } else if (region.status().code() == StatusCode::kUnsupported) {
      reasons.append(" ")
          .append(transports_[i]->name())
          .append(": ")
          .append(region.status().text());
    } else {
      return region.status().with_transport(transports_[i]->name()).with_operation("register");
    }
  }
  if (!any) {
    return Status::error(StatusCode::kUnavailable, "no transport takes this memory:" + reasons);
  }
  return local;
}

Result<TransportMask> Engine::offered(ByteSpan keys) const {
  auto entries = unpack_list(keys);
  if (!entries.ok()) return entries.status();
  TransportMask mask = 0;
  for (const auto& [name, key] : entries.value()) {
    for (std::size_t i = 0; i < reports_.size(); ++i) {
      if (reports_[i].name == name) mask |= bit(i);
    }
  }
  return mask;
}

Result<ImportedRegion> Engine::import_region(const Peer& peer, ByteSpan keys, TransportMask mask,
                                             const Deadline& deadline) {
  auto entries = unpack_list(keys);
  if (!entries.ok()) return entries.status();
  ImportedRegion imported;
  imported.regions.resize(transports_.size());
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    if ((mask & bit(i)) == 0 || !peer.endpoints[i]) continue;
    for (const auto& [name, key] : entries.value()) {
      if (name != transports_[i]->name()) continue;
      auto region = transports_[i]->import_region(key, deadline);
      if (!region.ok()) {
        return region.status().with_transport(transports_[i]->name()).with_operation("import");
      }
      imported.regions[i] = region.take();
    }
  }
  return imported;
}

int Engine::control_choice(TransportMask usable) const {
  usable &= control_mask_;
  const int allowed = lowest(usable & data_mask_);
  return allowed >= 0 ? allowed : lowest(usable);
}

int Engine::data_choice(TransportMask usable) const { return lowest(usable & data_mask_); }

std::string_view Engine::transport_name(int index) const {
  return index < 0 ? std::string_view("none") : reports_[static_cast<std::size_t>(index)].name;
}

Capabilities Engine::capabilities(int index) const {
  return transports_[static_cast<std::size_t>(index)]->capabilities();
}

std::size_t Engine::progress() {
  std::size_t completed = 0;
  for (const auto& transport : transports_) {
    if (transport) completed += transport->progress();
  }
  return completed;
}

bool Engine::needs_progress() const {
  return std::ranges::any_of(
      transports_, [](const auto& transport) { return transport && transport->needs_progress(); });
}

Status Engine::unanswered() {
  return Status::error(StatusCode::kTimeout, "the peer has not answered in time");
}

bool Engine::late(const Deadline* deadline) { return deadline != nullptr && deadline->expired(); }

Status Engine::wait_for(std::unique_ptr<Running> running, const Deadline* deadline) {
  while (!running->completion.done()) {
    if (!late(deadline)) {
      idle();
      continue;
    }
    std::lock_guard lock(abandoned_mutex_);
    std::erase_if(abandoned_, [](const auto& known) { return known->completion.done(); });
    abandoned_.push_back(std::move(running));
    return unanswered();
  }
  return running->completion.status();
}

void Engine::idle() {
  if (progress() == 0) sched_yield();
}

void Engine::do_behind(const std::function<void()>& work) {
  if (!copies_->submit(work)) work();
}

}  // namespace hixl_rma

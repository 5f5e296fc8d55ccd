// SPDX-License-Identifier: Apache-2.0
#include "conformance/side.h"

#include <algorithm>

#include "base/wire.h"
#include "support/patience.h"

namespace hixl_rma::testing {
namespace {

TransportMask bit(int index) { return TransportMask{1} << index; }

TransportEntry entry_of(std::string_view name) {
  if (name == "fake") return fakes::kFakeEntry;
  return *std::ranges::find(transport_registry(), name, &TransportEntry::name);
}

}  // namespace

Side::~Side() {
  if (!peer_) return;
  for (const auto& endpoint : peer_->endpoints) {
    if (endpoint) endpoint->close({});
  }
}

Status Side::open_engine(const Trial& trial) {
  // The order puts the transport under test first. `self` synchronises through itself, so that both
  // sides use one address for one word and TSan follows.
  registry_.push_back(entry_of(trial.transport));
  if (trial.transport == "cma" || trial.transport == "staged") registry_.push_back(entry_of("shm"));
  EngineOptions options;
  options.registry = registry_;
  auto engine = Engine::create(options);
  if (!engine.ok()) return engine.status();
  engine_ = engine.take();
  for (const TransportReport& report : engine_->reports()) {
    if (!report.viable) return Status::error(StatusCode::kUnavailable, report.reason);
  }
  tested_ = 0;
  sync_carrier_ = trial.is_fake() ? -1 : static_cast<int>(registry_.size()) - 1;
  return {};
}

Status Side::make_memory(const Trial& trial, std::size_t nbytes, std::uint32_t holder) {
  const std::array<SharedSegment::Range, 1> all = {SharedSegment::Range{0, sizeof(SyncArea)}};
  auto sync = SharedSegment::create(sizeof(SyncArea), all);
  if (!sync.ok()) return sync.status();
  sync_segment_ = sync.take();
  nbytes_ = nbytes;
  holder_ = holder;
  if (trial.transport == "shm") {
    auto segment = SharedSegment::create(nbytes, {});
    if (!segment.ok()) return segment.status();
    data_segment_ = segment.take();
    data_ = data_segment_->data();
  } else {
    plain_.resize(nbytes);
    data_ = plain_.data();
  }
  auto region = engine_->register_memory({data_, nbytes, MemoryKind::kHost, data_segment_.get()},
                                         Access::kReadWrite, bit(tested_));
  if (!region.ok()) return region.status();
  data_region_ = region.take();
  data_region_->bind(
      {.stripes = sync_area().stripes.data(), .holder = holder, .doorbell = &sync_area().doorbell});
  if (sync_carrier_ < 0) return {};
  auto offered = engine_->register_memory(
      {sync_segment_->data(), sizeof(SyncArea), MemoryKind::kHost, sync_segment_.get()},
      Access::kReadWrite, bit(sync_carrier_));
  if (!offered.ok()) return offered.status();
  sync_region_ = offered.take();
  return {};
}

Result<std::unique_ptr<Side>> Side::create(const Trial& trial, std::size_t nbytes,
                                           std::uint32_t holder) {
  std::unique_ptr<Side> side(new Side);
  if (Status status = side->open_engine(trial); !status.ok()) return status;
  if (Status status = side->make_memory(trial, nbytes, holder); !status.ok()) return status;
  return side;
}

SyncArea& Side::sync_area() const { return *reinterpret_cast<SyncArea*>(sync_segment_->data()); }

Bytes Side::introduction() const {
  return WireWriter()
      .bytes(engine_->address())
      .bytes(data_region_->packed_keys())
      .bytes(sync_region_ ? sync_region_->packed_keys() : Bytes())
      .take();
}

Status Side::connect(ByteSpan introduction) {
  WireReader reader(introduction);
  const ByteSpan address = reader.bytes();
  const ByteSpan data_keys = reader.bytes();
  const ByteSpan sync_keys = reader.bytes();
  auto peer = engine_->connect(address, true);
  if (!peer.ok()) return peer.status();
  peer_ = peer.take();
  const auto tested = static_cast<std::size_t>(tested_);
  if (!peer_->endpoints[tested]) {
    return Status::error(StatusCode::kUnavailable, peer_->reasons[tested]);
  }
  auto data = engine_->import_region(*peer_, data_keys, bit(tested_), soon());
  if (!data.ok()) return data.status();
  remote_data_ = data.take();
  if (sync_carrier_ < 0) return {};
  auto sync = engine_->import_region(*peer_, sync_keys, bit(sync_carrier_), soon());
  if (!sync.ok()) return sync.status();
  remote_sync_ = sync.take();
  auto& area = *reinterpret_cast<SyncArea*>(
      remote_sync_.regions[static_cast<std::size_t>(sync_carrier_)]->mapped());
  remote().bind({.stripes = area.stripes.data(), .holder = holder_, .doorbell = &area.doorbell});
  return {};
}

Endpoint& Side::endpoint() const { return *peer_->endpoints[static_cast<std::size_t>(tested_)]; }

RemoteRegion& Side::remote() const {
  return *remote_data_.regions[static_cast<std::size_t>(tested_)];
}

void Side::stop_offering() {
  data_region_->stop_offering();
  if (sync_region_) sync_region_->stop_offering();
}

Status Side::put(const std::byte* from, std::uint64_t offset, std::size_t nbytes) {
  const Piece piece{const_cast<std::byte*>(from), offset, nbytes};
  return engine_->run(
      [&](Completion* completion) { return endpoint().put(remote(), piece, completion); });
}

Status Side::get(std::byte* to, std::uint64_t offset, std::size_t nbytes) {
  const Piece piece{to, offset, nbytes};
  return engine_->run(
      [&](Completion* completion) { return endpoint().get(remote(), piece, completion); });
}

Status Side::put_v(std::span<const Piece> pieces) {
  return engine_->run(
      [&](Completion* completion) { return endpoint().put_v(remote(), pieces, completion); });
}

Status Side::get_v(std::span<const Piece> pieces) {
  return engine_->run(
      [&](Completion* completion) { return endpoint().get_v(remote(), pieces, completion); });
}

Status Side::flush(FlushScope scope) {
  return engine_->run([&](Completion* completion) { return endpoint().flush(scope, completion); });
}

Status Side::notify(const RecordWrite& record) {
  return engine_->run([&](Completion* completion) {
    return endpoint().notify(remote(), std::span(&record, 1), completion);
  });
}

Result<std::uint64_t> Side::fetch_add(std::uint64_t offset, std::uint64_t value) {
  std::uint64_t previous = 0;
  Status status = engine_->run([&](Completion* completion) {
    return endpoint().fetch_add(remote(), offset, value, &previous, completion);
  });
  if (!status.ok()) return status;
  return previous;
}

Result<std::uint64_t> Side::compare_swap(std::uint64_t offset, std::uint64_t expected,
                                         std::uint64_t desired) {
  std::uint64_t previous = 0;
  Status status = engine_->run([&](Completion* completion) {
    return endpoint().compare_swap(remote(), offset, expected, desired, &previous, completion);
  });
  if (!status.ok()) return status;
  return previous;
}

Status Side::accumulate(const Accumulate& operation) {
  return engine_->run([&](Completion* completion) {
    return endpoint().accumulate(remote(), operation, completion);
  });
}

Status Side::swap_element(const ElementSwap& operation) {
  return engine_->run([&](Completion* completion) {
    return endpoint().swap_element(remote(), operation, completion);
  });
}

}  // namespace hixl_rma::testing

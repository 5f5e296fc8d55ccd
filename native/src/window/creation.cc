// SPDX-License-Identifier: Apache-2.0
//
// How a window comes to be. prepare() makes the memory and registers it; its description travels to
// every rank; connect() reaches every rank's control memory and tells each, in that memory, which
// transports reach it from here; when all are through, settle() takes for each rank the first
// transport that works from both sides and imports the rank's memory on that one alone; when all
// are through that, too, finish() stops offering memory.
#include "base/log.h"
#include "base/random.h"
#include "base/wire.h"
#include "memory/host/present_pages.h"
#include "window/notify_watcher.h"  // IWYU pragma: keep (a member of Window)
#include "window/window.h"

namespace hixl_rma {
namespace {

constexpr std::uint32_t kWireVersion = 1;

constexpr bool has(TransportMask mask, std::size_t transport) {
  return (mask >> transport & 1) != 0;
}

}  // namespace

/// What there is to choose from for a rank.
struct Window::Choice {
  int rank = 0;
  TransportMask both = 0;     ///< reach it from here and reach this rank from there
  TransportMask offered = 0;  ///< its memory is registered with them
};

struct Window::Described {
  ByteSpan engine_address;
  std::uint64_t notifications = 0;
  std::uint64_t disp_unit = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t withdrawable = 0;
  std::uint64_t generation = 0;
  std::uint64_t salt = 0;
  ByteSpan control_keys;
  ByteSpan data_keys;

  static Result<Described> parse(ByteSpan bytes) {
    WireReader reader(bytes);
    const auto version = reader.number<std::uint32_t>();
    Described described;
    described.engine_address = reader.bytes();
    described.notifications = reader.number<std::uint64_t>();
    described.disp_unit = reader.number<std::uint64_t>();
    described.nbytes = reader.number<std::uint64_t>();
    described.withdrawable = reader.number<std::uint64_t>();
    described.generation = reader.number<std::uint64_t>();
    described.salt = reader.number<std::uint64_t>();
    described.control_keys = reader.bytes();
    described.data_keys = reader.bytes();
    if (version != kWireVersion) {
      return Status::error(StatusCode::kProtocolMismatch,
                           "a window's description has wire version " + std::to_string(version) +
                               ", ours is " + std::to_string(kWireVersion));
    }
    if (!reader.finished() || described.disp_unit == 0) {
      return Status::error(StatusCode::kProtocolMismatch, "a window's description is damaged");
    }
    return described;
  }
};

Window::Window(std::shared_ptr<Engine> engine, const WindowOptions& options)
    : engine_(std::move(engine)),
      options_(options),
      layout_(static_cast<std::size_t>(options.size), options.notifications),
      links_(std::make_unique<Link[]>(static_cast<std::uint32_t>(options.size))),
      control_links_(static_cast<std::size_t>(options.size)),
      epochs_(static_cast<std::size_t>(options.size)),
      posts_taken_(static_cast<std::size_t>(options.size)),
      posts_made_(static_cast<std::size_t>(options.size)),
      completes_taken_(static_cast<std::size_t>(options.size)),
      completes_made_(static_cast<std::size_t>(options.size)),
      salt_(random_word()) {}

Result<std::unique_ptr<Window>> Window::prepare(std::shared_ptr<Engine> engine,
                                                const WindowOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return Status::error(StatusCode::kInvalidArgument, "a window needs a rank of a group");
  }
  std::unique_ptr<Window> window(new Window(std::move(engine), options));
  if (Status status = window->make_memory(); !status.ok()) return status;
  if (Status status = window->register_regions(); !status.ok()) return status;
  window->board_ = std::make_unique<NotifyBoard>(
      window->control_, static_cast<std::size_t>(options.size), window->salt_);
  window->peers_ =
      std::make_unique<PeerWatch>(window->control_, static_cast<std::size_t>(options.size));
  window->options_.wait.peers = window->peers_.get();
  window->lock_ = std::make_unique<WindowLock>(window->control_links_, window->control_,
                                               window->layout_, options.rank, window->short_waits_);
  return window;
}

Status Window::make_memory() {
  const std::size_t records = layout_.nbytes() - layout_.records();
  if (records > options_.notification_cap) {
    return Status::error(StatusCode::kResourceExhausted,
                         std::to_string(options_.notifications) + " notifications from " +
                             std::to_string(options_.size) + " ranks need " +
                             std::to_string(records) +
                             " bytes of records on each rank, more than the cap of " +
                             std::to_string(options_.notification_cap) +
                             ": ask for fewer notifications or raise HIXL_RMA_NOTIFICATION_CAP");
  }
  const std::size_t data = options_.memory == nullptr ? options_.nbytes : 0;
  // Large memory begins where a huge page could; what lies between is never touched.
  std::size_t control = round_to_pages(layout_.nbytes());
  if (data >= kHugePage) control = (control + kHugePage - 1) / kHugePage * kHugePage;
  if (data > (std::size_t{1} << 62)) {
    return Status::error(StatusCode::kResourceExhausted,
                         "a window of " + std::to_string(data) + " bytes is out of reach");
  }
  const std::array<SharedSegment::Range, 2> reserved = {SharedSegment::Range{0, layout_.records()},
                                                        SharedSegment::Range{control, data}};
  auto segment = SharedSegment::create(control + data, reserved);
  if (!segment.ok()) return segment.status();
  segment_ = segment.take();
  control_ = ControlView(segment_->data(), layout_);
  memory_ = options_.memory != nullptr ? options_.memory : segment_->data() + control;
  control_.header().generation.store(random_word() | 1, std::memory_order_release);
  return {};
}

Status Window::register_regions() {
  auto control = engine_->register_memory(
      {segment_->data(), layout_.nbytes(), MemoryKind::kHost, segment_.get()}, Access::kReadWrite,
      engine_->control_mask());
  if (!control.ok()) return control.status();
  control_region_ = control.take();
  ControlHeader& header = control_.header();
  RegionSync sync;
  sync.stripes = header.stripes.data();
  sync.holder = static_cast<std::uint32_t>(options_.rank) + 1;
  sync.patience = &short_waits_;
  sync.doorbell = &header.doorbell;
  control_region_->bind(sync);
  if (options_.nbytes > 0) {
    const SharedSegment* shared = options_.memory == nullptr ? segment_.get() : nullptr;
    auto data = engine_->register_memory({memory_, options_.nbytes, MemoryKind::kHost, shared},
                                         Access::kReadWrite, engine_->data_mask());
    if (!data.ok()) return data.status();
    data_region_ = data.take();
    data_region_->bind(sync);
  }
  WireWriter writer;
  writer.number(kWireVersion)
      .bytes(engine_->address())
      .number(static_cast<std::uint64_t>(options_.notifications))
      .number(options_.disp_unit)
      .number(static_cast<std::uint64_t>(options_.nbytes))
      .number(static_cast<std::uint64_t>(options_.memory != nullptr ? 1 : 0))
      .number(header.generation.load())
      .number(salt_)
      .bytes(control_region_->packed_keys())
      .bytes(data_region_ ? data_region_->packed_keys() : Bytes());
  description_ = writer.take();
  return {};
}

Status Window::connect(std::span<const Bytes> descriptions, const Deadline& deadline) {
  if (descriptions.size() != static_cast<std::size_t>(options_.size)) {
    return Status::error(StatusCode::kInternal, "one description for each rank is needed");
  }
  for (int peer = 0; peer < options_.size; ++peer) {
    auto described = Described::parse(descriptions[static_cast<std::size_t>(peer)]);
    if (!described.ok()) return described.status().with_peer(peer);
    if (described.value().notifications != options_.notifications) {
      return Status::error(
          StatusCode::kInvalidArgument,
          "notifications must be equal on all ranks: rank " + std::to_string(peer) + " has " +
              std::to_string(described.value().notifications) + ", rank " +
              std::to_string(options_.rank) + " has " + std::to_string(options_.notifications));
    }
    if (Status status = connect_rank(peer, described.value(), deadline); !status.ok()) {
      return status.with_operation("create").with_peer(peer);
    }
  }
  return {};
}

Status Window::connect_rank(int peer_rank, const Described& described, const Deadline& deadline) {
  Link& to = link(peer_rank);
  to.nbytes = described.nbytes;
  to.disp_unit = described.disp_unit;
  to.last_displacement = to.nbytes / to.disp_unit;
  to.withdrawable = described.withdrawable != 0;
  to.generation = described.generation;
  to.salt = described.salt;
  auto peer = engine_->connect(described.engine_address, peer_rank == options_.rank);
  if (!peer.ok()) return peer.status();
  to.peer = peer.take();
  if (peer_rank != options_.rank) peers_->add(peer_rank, to.peer->process);
  const TransportMask reachable = to.peer->reachable();
  to.control_transport = engine_->control_choice(reachable);
  if (to.control_transport < 0) return no_transport({peer_rank, reachable, ~TransportMask{0}});
  auto control = engine_->import_region(*to.peer, described.control_keys,
                                        TransportMask{1} << to.control_transport, deadline);
  if (!control.ok()) return control.status();
  to.control_regions = control.take();
  to.data_keys.assign(described.data_keys.begin(), described.data_keys.end());
  const auto control_index = static_cast<std::size_t>(to.control_transport);
  RemoteRegion* region = to.control_regions.regions[control_index].get();
  if (region == nullptr || region->nbytes() != layout_.nbytes()) {
    return Status::error(StatusCode::kProtocolMismatch, "control memory of another size");
  }
  RegionSync sync = sync_with(peer_rank);
  sync.generation = nullptr;  // control memory is never withdrawn
  sync.in_flight = nullptr;
  region->bind(sync);
  control_links_[static_cast<std::size_t>(peer_rank)] =
      ControlLink(*engine_, *to.peer->endpoints[control_index], *region,
                  engine_->capabilities(to.control_transport).completes_inline);
  const std::uint64_t verdict =
      layout_.peer(static_cast<std::size_t>(options_.rank)) + offsetof(PeerWords, verdict);
  return control_links_[static_cast<std::size_t>(peer_rank)].store(verdict,
                                                                   std::uint64_t{reachable} + 1);
}

// Where the peer's control memory is mapped, what synchronises its regions is reached by pointer.
RegionSync Window::sync_with(int peer_rank) {
  const Link& to = link(peer_rank);
  const RemoteRegion& control =
      *to.control_regions.regions[static_cast<std::size_t>(to.control_transport)];
  std::byte* base = control.mapped();
  RegionSync sync;
  sync.holder = static_cast<std::uint32_t>(options_.rank) + 1;
  sync.patience = &short_waits_;
  if (base == nullptr) return sync;
  auto& header = *reinterpret_cast<ControlHeader*>(base);
  auto& mine =
      *reinterpret_cast<PeerWords*>(base + layout_.peer(static_cast<std::size_t>(options_.rank)));
  sync.stripes = header.stripes.data();
  sync.doorbell = &header.doorbell;
  if (to.withdrawable) {
    sync.generation = &header.generation;
    sync.expected_generation = to.generation;
    sync.in_flight = &mine.in_flight;
  }
  return sync;
}

// Why a transport does not carry the data; "" when it could.
std::string Window::refusal(std::size_t transport, const Choice& choice) const {
  const Link& to = link(choice.rank);
  const TransportReport& report = engine_->reports()[transport];
  if (!report.viable) return report.reason;
  if (!has(engine_->data_mask(), transport)) return "not among the transports that are allowed";
  if (!to.peer->reasons[transport].empty()) return to.peer->reasons[transport];
  if (to.control_transport < 0) return "it carries no control memory";
  if (!has(choice.offered, transport)) return "not for memory of this kind";
  if (!has(choice.both, transport)) return "the peer cannot use it";
  return has(engine_->mapped_control_mask(), transport)
             ? "the peer's control memory is not mapped here"
             : "";
}

Status Window::no_transport(const Choice& choice) const {
  std::vector<std::pair<std::string, std::string>> reasons;
  reasons.reserve(engine_->reports().size());
  for (std::size_t i = 0; i < engine_->reports().size(); ++i) {
    reasons.emplace_back(engine_->reports()[i].name, refusal(i, choice));
  }
  return Status::unavailable(
             "no transport carries this window's memory to rank " + std::to_string(choice.rank),
             std::move(reasons))
      .with_peer(choice.rank);
}

Status Window::settle(const Deadline& deadline) {
  for (int peer = 0; peer < options_.size; ++peer) {
    if (Status status = settle_rank(peer, deadline); !status.ok()) {
      return status.with_operation("create").with_peer(peer);
    }
  }
  return {};
}

void Window::finish() {
  control_region_->stop_offering();
  if (data_region_) data_region_->stop_offering();
  segment_->close_descriptor();
}

Status Window::settle_rank(int peer_rank, const Deadline& deadline) {
  Link& to = link(peer_rank);
  const std::uint64_t verdict =
      control_.peer(static_cast<std::size_t>(peer_rank)).verdict.load(std::memory_order_acquire);
  if (verdict == 0) {
    return Status::error(StatusCode::kInternal, "rank " + std::to_string(peer_rank) +
                                                    " has not said how it reaches this one");
  }
  const auto control = static_cast<std::size_t>(to.control_transport);
  Choice choice{peer_rank, to.peer->reachable() & static_cast<TransportMask>(verdict - 1), 0};
  if (to.nbytes == 0) {  // reached by its control memory alone
    to.data_transport = to.control_transport;
    to.data_region = to.control_regions.regions[control].get();
  } else {
    auto offered = engine_->offered(to.data_keys);
    if (!offered.ok()) return offered.status();
    choice.offered = offered.value();
    TransportMask usable = choice.both & choice.offered;
    if (to.control_regions.regions[control]->mapped() == nullptr) {
      usable &= ~engine_->mapped_control_mask();
    }
    to.data_transport = engine_->data_choice(usable);
    if (to.data_transport < 0) return no_transport(choice);
    if (Status status = import_data(peer_rank, deadline); !status.ok()) return status;
  }
  log_choice(choice, static_cast<std::size_t>(to.data_transport));
  to.data = to.peer->endpoints[static_cast<std::size_t>(to.data_transport)].get();
  const Capabilities capabilities = engine_->capabilities(to.data_transport);
  to.inline_data = capabilities.completes_inline;
  any_waits_ = any_waits_ || !to.inline_data;
  inline_control_ = inline_control_ && engine_->capabilities(to.control_transport).completes_inline;
  to.ordered = capabilities.completes_inline ||
               (capabilities.put_then_notify && to.data_transport == to.control_transport);
  return {};
}

Status Window::import_data(int peer_rank, const Deadline& deadline) {
  Link& to = link(peer_rank);
  auto data = engine_->import_region(*to.peer, to.data_keys, TransportMask{1} << to.data_transport,
                                     deadline);
  if (!data.ok()) return data.status();
  to.data_regions = data.take();
  to.data_keys = {};
  to.data_region = to.data_regions.regions[static_cast<std::size_t>(to.data_transport)].get();
  if (to.data_region == nullptr || to.data_region->nbytes() != to.nbytes) {
    return Status::error(StatusCode::kProtocolMismatch, "data memory of another size");
  }
  to.data_region->bind(sync_with(peer_rank));
  return {};
}

// One line a peer: what was chosen, and why nothing that comes before it.
void Window::log_choice(const Choice& choice, std::size_t chosen) const {
  if (options_.rank == choice.rank) return;
  const auto& reports = engine_->reports();
  std::string line = "window: rank " + std::to_string(options_.rank) + " reaches rank " +
                     std::to_string(choice.rank) + " through " + reports[chosen].name;
  for (std::size_t i = 1; i < chosen; ++i) {  // 0 reaches this process alone
    // Silent about what the memory does not suit; who is not connected cannot offer any.
    const bool fits = !link(choice.rank).peer->endpoints[i] || has(choice.offered, i);
    if (!fits || !has(engine_->data_mask(), i)) continue;
    line += "; " + reports[i].name + " refused: " + refusal(i, choice);
  }
  log_line(LogLevel::kInfo, std::move(line));
}

std::string Window::transport_of(int target) const {
  return std::string(engine_->transport_name(link(target).data_transport));
}

std::byte* Window::mapped(int target, std::shared_ptr<const void>* keep) const {
  const Link& to = link(target);
  if (to.nbytes == 0 || to.data_region == nullptr) return nullptr;
  *keep = to.data_region->mapping();
  if (*keep == nullptr) *keep = segment_;
  return to.data_region->mapped();
}

PeerStats Window::stats(int target) const {
  const Link& to = link(target);
  return {to.puts.counts(), to.gets.counts(), to.accumulates.counts(), to.notifies.counts().calls,
          to.waits.counts()};
}

}  // namespace hixl_rma

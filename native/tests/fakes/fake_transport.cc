// SPDX-License-Identifier: Apache-2.0
#include "fakes/fake_transport.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "base/random.h"
#include "base/wire.h"
#include "fakes/fake_queue.h"
#include "transport/common/process_facts.h"

namespace hixl_rma::fakes {
namespace {

constexpr std::uint32_t kWireVersion = 1;
constexpr std::uint64_t kKeyMagic = 0x6b65795f66616b65;  // says that a key is one of ours

struct CurrentSession {
  std::mutex mutex;
  std::shared_ptr<FakeNetwork> network;
};

CurrentSession& current() {
  static CurrentSession session;
  return session;
}

Status bad_key() { return Status::error(StatusCode::kProtocolMismatch, "bad region key"); }

std::size_t bytes_of(std::span<const Piece> pieces) {
  std::size_t nbytes = 0;
  for (const Piece& piece : pieces) nbytes += piece.nbytes;
  return nbytes;
}

class FakeRegion final : public MemoryRegion {
 public:
  FakeRegion(std::shared_ptr<FakePort> port, std::uint64_t port_id, const MemoryView& view)
      : port_(std::move(port)),
        port_id_(port_id),
        id_(port_->add_region(view)),
        nbytes_(view.nbytes) {}
  FakeRegion(const FakeRegion&) = delete;
  FakeRegion& operator=(const FakeRegion&) = delete;
  ~FakeRegion() override { port_->remove_region(id_); }

  [[nodiscard]] Bytes packed_key() const override {
    return WireWriter().number(kKeyMagic).number(port_id_).number(id_).number(nbytes_).take();
  }
  void bind(const RegionSync& sync) override { port_->bind_region(id_, sync); }

 private:
  std::shared_ptr<FakePort> port_;
  std::uint64_t port_id_;
  std::uint64_t id_;
  std::uint64_t nbytes_;
};

class FakeRemoteRegion final : public RemoteRegion {
 public:
  FakeRemoteRegion(std::uint64_t id, std::uint64_t nbytes) : RemoteRegion(nbytes), id_(id) {}
  [[nodiscard]] std::uint64_t id() const { return id_; }

 private:
  std::uint64_t id_;
};

std::uint64_t id_of(const RemoteRegion& region) {
  return static_cast<const FakeRemoteRegion&>(region).id();
}

class FakeEndpoint final : public Endpoint {
 public:
  FakeEndpoint(const std::shared_ptr<FakeNetwork>& network, std::shared_ptr<FakeQueue> queue)
      : eager_bytes_(network->options().eager_bytes), queue_(std::move(queue)) {}
  FakeEndpoint(const FakeEndpoint&) = delete;
  FakeEndpoint& operator=(const FakeEndpoint&) = delete;
  ~FakeEndpoint() override { queue_->close(); }

  PostResult put(RemoteRegion& region, const Piece& piece, Completion* completion) override {
    return put_v(region, std::span(&piece, 1), completion);
  }
  PostResult get(RemoteRegion& region, const Piece& piece, Completion* completion) override {
    return get_v(region, std::span(&piece, 1), completion);
  }
  PostResult put_v(RemoteRegion& region, std::span<const Piece> pieces,
                   Completion* completion) override;
  PostResult get_v(RemoteRegion& region, std::span<const Piece> pieces,
                   Completion* completion) override;
  PostResult flush(FlushScope scope, Completion* completion) override {
    return queue_->flush(scope, completion);
  }
  void close(const Status&) override { queue_->close(); }
  PostResult notify(RemoteRegion& region, std::span<const RecordWrite> records,
                    Completion* completion) override;
  PostResult fetch_add(RemoteRegion& region, std::uint64_t offset, std::uint64_t value,
                       std::uint64_t* previous, Completion* completion) override;
  PostResult compare_swap(RemoteRegion& region, std::uint64_t offset, std::uint64_t expected,
                          std::uint64_t desired, std::uint64_t* previous,
                          Completion* completion) override;
  PostResult accumulate(RemoteRegion& region, const Accumulate& operation,
                        Completion* completion) override;
  PostResult swap_element(RemoteRegion& region, const ElementSwap& operation,
                          Completion* completion) override;

 private:
  PostResult post(FakeVerb verb, RemoteRegion& region, bool borrows, FakeWork work,
                  Completion* completion) {
    FakeOperation operation;
    operation.verb = verb;
    operation.region = id_of(region);
    operation.borrows = borrows;
    operation.work = std::move(work);
    operation.completion = completion;
    return queue_->post(std::move(operation));
  }

  std::size_t eager_bytes_;
  std::shared_ptr<FakeQueue> queue_;
};

PostResult FakeEndpoint::put_v(RemoteRegion& region, std::span<const Piece> pieces,
                               Completion* completion) {
  // The list belongs to the call, the memory it names to the operation.
  std::vector<Piece> list(pieces.begin(), pieces.end());
  if (bytes_of(pieces) > eager_bytes_) {
    return post(
        FakeVerb::kPut, region, true,
        [list = std::move(list)](MappedEndpoint& verbs, RemoteRegion& target) {
          return verbs.put_v(target, list, nullptr);
        },
        completion);
  }
  Bytes staged;
  for (const Piece& piece : pieces) {
    staged.insert(staged.end(), piece.local, piece.local + piece.nbytes);
  }
  return post(
      FakeVerb::kPut, region, false,
      [list = std::move(list), staged = std::move(staged)](MappedEndpoint& verbs,
                                                           RemoteRegion& target) mutable {
        std::byte* from = staged.data();
        for (Piece& piece : list) {
          piece.local = from;
          from += piece.nbytes;
        }
        return verbs.put_v(target, list, nullptr);
      },
      completion);
}

PostResult FakeEndpoint::get_v(RemoteRegion& region, std::span<const Piece> pieces,
                               Completion* completion) {
  return post(
      FakeVerb::kGet, region, true,
      [list = std::vector(pieces.begin(), pieces.end())](MappedEndpoint& verbs,
                                                         RemoteRegion& target) {
        return verbs.get_v(target, list, nullptr);
      },
      completion);
}

PostResult FakeEndpoint::notify(RemoteRegion& region, std::span<const RecordWrite> records,
                                Completion* completion) {
  return post(
      FakeVerb::kNotify, region, false,
      [list = std::vector(records.begin(), records.end())](MappedEndpoint& verbs,
                                                           RemoteRegion& target) {
        return verbs.notify(target, list, nullptr);
      },
      completion);
}

PostResult FakeEndpoint::fetch_add(RemoteRegion& region, std::uint64_t offset, std::uint64_t value,
                                   std::uint64_t* previous, Completion* completion) {
  return post(
      FakeVerb::kFetchAdd, region, true,
      [=](MappedEndpoint& verbs, RemoteRegion& target) {
        return verbs.fetch_add(target, offset, value, previous, nullptr);
      },
      completion);
}

PostResult FakeEndpoint::compare_swap(RemoteRegion& region, std::uint64_t offset,
                                      std::uint64_t expected, std::uint64_t desired,
                                      std::uint64_t* previous, Completion* completion) {
  return post(
      FakeVerb::kCompareSwap, region, true,
      [=](MappedEndpoint& verbs, RemoteRegion& target) {
        return verbs.compare_swap(target, offset, expected, desired, previous, nullptr);
      },
      completion);
}

PostResult FakeEndpoint::accumulate(RemoteRegion& region, const Accumulate& operation,
                                    Completion* completion) {
  if (!is_supported(operation.type, operation.op)) {
    return Status::error(StatusCode::kInvalidType, "no such reduction");
  }
  return post(
      FakeVerb::kAccumulate, region, true,
      [operation](MappedEndpoint& verbs, RemoteRegion& target) {
        return verbs.accumulate(target, operation, nullptr);
      },
      completion);
}

PostResult FakeEndpoint::swap_element(RemoteRegion& region, const ElementSwap& operation,
                                      Completion* completion) {
  return post(
      FakeVerb::kSwap, region, true,
      [operation](MappedEndpoint& verbs, RemoteRegion& target) {
        return verbs.swap_element(target, operation, nullptr);
      },
      completion);
}

/// `creations_` is no atomic on purpose: it is written where the contract lets in one thread at a
/// time and read where it promises no change, so that TSan catches an engine that does otherwise.
class FakeTransport final : public Transport {
 public:
  explicit FakeTransport(std::shared_ptr<FakeNetwork> network)
      : network_(std::move(network)), port_(std::make_shared<FakePort>(network_)) {
    port_id_ = network_->add_port(port_);
    port_->start();
  }
  FakeTransport(const FakeTransport&) = delete;
  FakeTransport& operator=(const FakeTransport&) = delete;
  ~FakeTransport() override { port_->stop(); }

  [[nodiscard]] std::string_view name() const override { return kFakeEntry.name; }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.any_host_memory = true,
            .control = true,
            .accumulate = true,
            .put_then_notify = true,
            .completes_inline = false};
  }

  [[nodiscard]] Bytes address() const override {
    (void)creations_;
    return WireWriter().number(kWireVersion).bytes(process_).number(port_id_).take();
  }

  [[nodiscard]] Status can_reach(ByteSpan peer_address) const override {
    (void)creations_;
    WireReader reader(peer_address);
    const auto version = reader.number<std::uint32_t>();
    const ByteSpan peer = reader.bytes();
    (void)reader.number<std::uint64_t>();
    if (!reader.finished() || version != kWireVersion) {
      return Status::error(StatusCode::kUnavailable, "the peer speaks another version of fake");
    }
    if (!std::ranges::equal(peer, process_)) {
      return Status::error(StatusCode::kUnavailable, "the peer is another process");
    }
    return {};
  }

  Result<std::unique_ptr<Endpoint>> connect(ByteSpan peer_address) override {
    ++creations_;
    WireReader reader(peer_address);
    (void)reader.number<std::uint32_t>();
    (void)reader.bytes();
    auto target = network_->find_port(reader.number<std::uint64_t>());
    if (!reader.finished() || target == nullptr) {
      return Status::error(StatusCode::kUnavailable, "no fake transport has this address");
    }
    auto queue = std::make_shared<FakeQueue>(network_, target);
    target->add_inbound(queue);
    std::lock_guard lock(mutex_);
    std::erase_if(queues_, [](const auto& known) { return known.expired(); });
    queues_.push_back(queue);
    return std::unique_ptr<Endpoint>(std::make_unique<FakeEndpoint>(network_, std::move(queue)));
  }

  Result<std::unique_ptr<MemoryRegion>> register_memory(const MemoryView& view, Access) override {
    ++creations_;
    return std::unique_ptr<MemoryRegion>(std::make_unique<FakeRegion>(port_, port_id_, view));
  }

  Result<std::unique_ptr<RemoteRegion>> import_region(ByteSpan key, const Deadline&) override {
    ++creations_;
    WireReader reader(key);
    const auto magic = reader.number<std::uint64_t>();
    (void)reader.number<std::uint64_t>();
    const auto id = reader.number<std::uint64_t>();
    const auto nbytes = reader.number<std::uint64_t>();
    if (!reader.finished() || magic != kKeyMagic) return bad_key();
    network_->count_import();
    return std::unique_ptr<RemoteRegion>(std::make_unique<FakeRemoteRegion>(id, nbytes));
  }

  std::size_t progress() override {
    std::size_t completed = 0;
    for (const auto& queue : live_queues()) {
      if (!network_->options().target_executes) queue->execute_one();
      completed += queue->fire();
    }
    return completed;
  }

  [[nodiscard]] bool needs_progress() const override {
    return std::ranges::any_of(live_queues(),
                               [](const auto& queue) { return queue->outstanding(); });
  }

 private:
  std::vector<std::shared_ptr<FakeQueue>> live_queues() const {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<FakeQueue>> live;
    for (const auto& queue : queues_) {
      if (auto strong = queue.lock()) live.push_back(std::move(strong));
    }
    return live;
  }

  const Token process_ = process_facts().instance;
  std::shared_ptr<FakeNetwork> network_;
  std::shared_ptr<FakePort> port_;
  std::uint64_t port_id_ = 0;
  int creations_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<FakeQueue>> queues_;
};

}  // namespace

FakeSession::FakeSession(const FakeOptions& options)
    : network_(std::make_shared<FakeNetwork>(options)) {
  std::lock_guard lock(current().mutex);
  current().network = network_;
}

FakeSession::~FakeSession() {
  std::lock_guard lock(current().mutex);
  current().network.reset();
}

void FakeSession::hold() { network_->set_held(true); }
void FakeSession::release() { network_->set_held(false); }

void FakeSession::fail_post(FakeVerb verb, std::uint64_t nth) {
  network_->add_fault(verb, nth, FakeFault::kPost);
}

void FakeSession::fail_completion(FakeVerb verb, std::uint64_t nth) {
  network_->add_fault(verb, nth, FakeFault::kCompletion);
}

std::vector<FakeExecution> FakeSession::executed() const { return network_->executed(); }
std::size_t FakeSession::imports() const { return network_->imports(); }
std::size_t FakeSession::executed_count() const { return network_->executed_count(); }

Result<std::unique_ptr<Transport>> probe_fake() {
  std::shared_ptr<FakeNetwork> network;
  {
    std::lock_guard lock(current().mutex);
    network = current().network;
  }
  if (network == nullptr) {
    return Status::error(StatusCode::kUnavailable, "no session of the fake transport is open");
  }
  return std::unique_ptr<Transport>(std::make_unique<FakeTransport>(std::move(network)));
}

}  // namespace hixl_rma::fakes

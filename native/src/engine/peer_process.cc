// SPDX-License-Identifier: Apache-2.0
#include "engine/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "base/abstract_socket.h"
#include "base/fork.h"
#include "base/of_process.h"
#include "base/wire.h"
#include "transport/common/process_facts.h"

namespace hixl_rma {
namespace {

constexpr std::uint32_t kWireVersion = 1;
constexpr int kBacklog = 4096;

struct Identity {
  std::string boot_id;
  std::uint64_t pid_namespace = 0;
  std::uint64_t net_namespace = 0;
  std::uint64_t pid = 0;
  std::uint64_t start_time = 0;
  std::string beacon;

  static Result<Identity> parse(ByteSpan bytes) {
    WireReader reader(bytes);
    Identity identity;
    const auto version = reader.number<std::uint32_t>();
    identity.boot_id = reader.text();
    identity.pid_namespace = reader.number<std::uint64_t>();
    identity.net_namespace = reader.number<std::uint64_t>();
    identity.pid = reader.number<std::uint64_t>();
    identity.start_time = reader.number<std::uint64_t>();
    identity.beacon = reader.text();
    if (!reader.finished() || version != kWireVersion) {
      return Status::error(StatusCode::kProtocolMismatch, "the peer's identity is damaged");
    }
    return identity;
  }
};

Status ended() { return Status::error(StatusCode::kPeerLost, "the peer process has ended"); }

// A pid may be of another process by now: its start time tells.
Result<Descriptor> open_process(const Identity& identity) {
  Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)));
  if (!process.valid()) {
    if (errno == ESRCH) return ended();
    return Status::from_errno(StatusCode::kUnavailable, "pidfd_open failed", errno);
  }
  if (start_time_of(identity.pid) != identity.start_time) return ended();
  return process;
}

// An abstract name is one of its network namespace: only there is an absent one a sign.
Result<Descriptor> connect_beacon(const Identity& identity, bool same_network) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid() || !is_socket_name(identity.beacon)) {
    return Status::error(StatusCode::kUnavailable, "no socket to watch the peer by");
  }
  const AbstractAddress address(identity.beacon);
  if (connect(socket.get(), address.get(), address.length) != 0) {
    if (same_network && errno == ECONNREFUSED) return ended();
    return Status::from_errno(StatusCode::kUnavailable, "the peer's beacon is not reached", errno);
  }
  return socket;
}

}  // namespace

std::shared_ptr<ProcessBeacon> ProcessBeacon::of_process() {
  return hixl_rma::of_process<ProcessBeacon>([] { return std::make_shared<ProcessBeacon>(); });
}

ProcessBeacon::ProcessBeacon() {
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string name = random_socket_name();
  const AbstractAddress address(name);
  if (!listener.valid() || bind(listener.get(), address.get(), address.length) != 0 ||
      listen(listener.get(), kBacklog) != 0) {
    return;
  }
  fork_generation_ = fork_generation();
  name_ = name;
  listener_ = std::move(listener);
  close_in_child(listener_.get(), true);
}

ProcessBeacon::~ProcessBeacon() {
  if (!listener_.valid()) return;
  if (fork_generation_ == fork_generation()) {
    close_in_child(listener_.get(), false);
  } else {
    listener_.release();  // closed at the fork; the number may be another's by now
  }
}

Bytes ProcessBeacon::identity() const {
  const ProcessFacts facts = process_facts();
  return WireWriter()
      .number(kWireVersion)
      .text(facts.boot_id)
      .number(facts.pid_namespace)
      .number(facts.net_namespace)
      .number(facts.pid)
      .number(facts.start_time)
      .text(name_)
      .take();
}

Result<std::shared_ptr<PeerProcess>> PeerProcess::watch(ByteSpan bytes) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<PeerProcess>> known;
  auto parsed = Identity::parse(bytes);
  if (!parsed.ok()) return parsed.status();
  const Identity& identity = parsed.value();
  std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<PeerProcess>& entry =
      known[std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())];
  if (auto process = entry.lock()) return process;
  auto process = std::make_shared<PeerProcess>();
  const ProcessFacts facts = process_facts();
  if (identity.boot_id == facts.boot_id) {
    Result<Descriptor> descriptor =
        identity.pid_namespace == facts.pid_namespace
            ? open_process(identity)
            : Result<Descriptor>(Status::error(StatusCode::kUnavailable, ""));
    if (descriptor.status().code() == StatusCode::kPeerLost) return descriptor.status();
    if (!descriptor.ok()) {
      descriptor = connect_beacon(identity, identity.net_namespace == facts.net_namespace);
      if (descriptor.status().code() == StatusCode::kPeerLost) return descriptor.status();
    }
    if (descriptor.ok()) process->descriptor_ = descriptor.take();
  }
  entry = process;
  return process;
}

bool PeerProcess::gone() {
  if (gone_.load(std::memory_order_relaxed)) return true;
  if (!descriptor_.valid()) return false;
  pollfd entry{descriptor_.get(), POLLIN, 0};
  if (poll(&entry, 1, 0) <= 0) return false;
  gone_.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace hixl_rma

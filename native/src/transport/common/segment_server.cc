// SPDX-License-Identifier: Apache-2.0
#include "transport/common/segment_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/abstract_socket.h"
#include "base/log.h"
#include "memory/host/shared_segment.h"

namespace hixl_rma {
namespace {

constexpr int kClientDeadlineMs = 2000;

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

// Waits until the socket is readable; false at the deadline.
bool readable_within(int socket, int milliseconds) {
  pollfd entry{socket, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&entry, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

void send_answer(int client, int fd) {
  char granted = fd >= 0 ? 1 : 0;
  iovec payload{&granted, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  if (sendmsg(client, &message, MSG_NOSIGNAL) < 0) {
    log_line(LogLevel::kWarning, "handing over a shared segment failed");
  }
}

// Takes every descriptor that came, keeps one and closes the rest.
Descriptor receive_descriptor(int socket, bool& granted) {
  char answer = 0;
  iovec payload{&answer, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  Descriptor kept;
  if (got != 1) return kept;
  granted = answer == 1;
  std::size_t count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n; ++i, ++count) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      Descriptor descriptor(fd);
      if (count == 0) kept = std::move(descriptor);
    }
  }
  if (count != 1) kept.reset();
  return kept;
}

}  // namespace

SegmentServer::~SegmentServer() {
  if (thread_.is_parents()) return;
  std::unique_lock lock(mutex_);
  offers_.clear();
  stop(lock);
}

Result<Token> SegmentServer::offer(int fd, std::function<Status()> on_request) {
  std::lock_guard lock(mutex_);
  if (!thread_.started()) {
    if (Status status = start(); !status.ok()) return status;
  }
  const Token token = random_token();
  offers_.emplace(token, Offer{fd, std::move(on_request)});
  return token;
}

void SegmentServer::withdraw(const Token& token) {
  if (thread_.is_parents()) return;  // offered by the parent
  std::unique_lock lock(mutex_);
  offers_.erase(token);
  if (offers_.empty()) stop(lock);
}

std::string SegmentServer::socket_name() const {
  std::lock_guard lock(mutex_);
  return name_;
}

Status SegmentServer::start() {
  Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  Descriptor wake(eventfd(0, EFD_CLOEXEC));
  if (!listener.valid() || !wake.valid()) {
    return Status::from_errno(StatusCode::kResourceExhausted, "no socket for shared segments",
                              errno);
  }
  const std::string name = random_socket_name();
  const AbstractAddress address(name);
  if (bind(listener.get(), address.get(), address.length) != 0 ||
      listen(listener.get(), 4096) != 0) {
    return Status::from_errno(StatusCode::kUnavailable,
                              "binding the abstract socket for shared segments failed", errno);
  }
  Status status = thread_.start(
      "hixl-segments",
      [this, listener_fd = listener.get(), wake_fd = wake.get()] { serve(listener_fd, wake_fd); });
  if (!status.ok()) return status;
  listener_ = std::move(listener);
  wake_ = std::move(wake);
  name_ = name;
  return {};
}

void SegmentServer::stop(std::unique_lock<std::mutex>& lock) {
  if (!thread_.started()) return;
  OwnThread thread = std::move(thread_);
  Descriptor listener = std::move(listener_);
  Descriptor wake = std::move(wake_);
  name_.clear();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake.get(), &one, sizeof one);
  lock.unlock();  // the thread may be about to look an offer up
  thread.join();
  lock.lock();
}

void SegmentServer::serve(int listener, int wake) {
  for (;;) {
    std::array<pollfd, 2> entries{pollfd{listener, POLLIN, 0}, pollfd{wake, POLLIN, 0}};
    if (poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries[1].revents != 0) return;
    Descriptor client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (client.valid()) answer(client.get());
  }
}

void SegmentServer::answer(int client) {
  Token token{};
  if (!same_user(client) || !readable_within(client, kClientDeadlineMs) ||
      recv(client, token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    return;
  }
  // Answered under the lock: the descriptor cannot be withdrawn and closed meanwhile.
  std::lock_guard lock(mutex_);
  const auto found = offers_.find(token);
  int fd = found == offers_.end() ? -1 : found->second.fd;
  if (fd >= 0 && found->second.on_request) {
    if (Status status = found->second.on_request(); !status.ok()) {
      log_line(LogLevel::kWarning, "a segment was refused: " + std::string(status.text()));
      fd = -1;
    }
  }
  send_answer(client, fd);
}

Result<Descriptor> request_segment(const std::string& socket_name, const Token& token,
                                   const Deadline& deadline) {
  Descriptor client(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!client.valid()) {
    return Status::from_errno(StatusCode::kResourceExhausted, "no socket for a shared segment",
                              errno);
  }
  if (!is_socket_name(socket_name)) {
    return Status::error(StatusCode::kProtocolMismatch, "bad name of a segment socket");
  }
  const AbstractAddress address(socket_name);
  if (connect(client.get(), address.get(), address.length) != 0) {
    return Status::from_errno(StatusCode::kUnavailable,
                              "the peer's segment socket cannot be reached", errno);
  }
  if (!same_user(client.get())) {
    return Status::error(StatusCode::kAccessDenied, "the segment socket is of another user");
  }
  if (send(client.get(), token.data(), token.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(token.size())) {
    return Status::from_errno(StatusCode::kUnavailable, "asking for a shared segment failed",
                              errno);
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining(std::chrono::seconds(60)));
  if (!readable_within(client.get(), static_cast<int>(left.count()))) {
    return Status::error(StatusCode::kTimeout, "the peer did not hand over its shared segment");
  }
  bool granted = false;
  Descriptor descriptor = receive_descriptor(client.get(), granted);
  if (!granted || !descriptor.valid()) {
    return Status::error(StatusCode::kAccessDenied, "the peer refused its shared segment");
  }
  return descriptor;
}

Status try_segments() {
  const auto unavailable = [](const Status& status) {
    return Status::error(StatusCode::kUnavailable, std::string(status.text()));
  };
  auto segment = SharedSegment::create(1, {});
  if (!segment.ok()) return unavailable(segment.status());
  SegmentServer server;
  auto token = server.offer(segment.value()->fd());
  if (!token.ok()) return unavailable(token.status());
  auto descriptor = request_segment(server.socket_name(), token.value(),
                                    Deadline::after(std::chrono::seconds(5)));
  return descriptor.ok() ? Status() : unavailable(descriptor.status());
}

}  // namespace hixl_rma

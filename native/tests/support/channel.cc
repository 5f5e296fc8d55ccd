// SPDX-License-Identifier: Apache-2.0
#include "support/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "support/patience.h"

namespace hixl_rma::testing {

std::pair<Channel, Channel> Channel::pair() {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
  return {Channel(Descriptor(ends[0])), Channel(Descriptor(ends[1]))};
}

bool Channel::read_exactly(void* to, std::size_t nbytes) {
  auto* at = static_cast<char*>(to);
  const Deadline deadline = soon();
  while (nbytes > 0) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (poll(&entry, 1, 100) <= 0) {
      if (deadline.expired()) return false;
      continue;
    }
    const ssize_t got = recv(socket_.get(), at, nbytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    nbytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool Channel::write_exactly(const void* from, std::size_t nbytes) {
  const auto* at = static_cast<const char*>(from);
  while (nbytes > 0) {
    const ssize_t sent = ::send(socket_.get(), at, nbytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    nbytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool Channel::send(ByteSpan message) {
  // TSan counts what send() reads as read after the message went out: not of the memory under test.
  const Bytes copy(message.begin(), message.end());
  const std::uint64_t length = copy.size();
  return write_exactly(&length, sizeof length) && write_exactly(copy.data(), copy.size());
}

bool Channel::receive(Bytes* message) {
  std::uint64_t length = 0;
  if (!read_exactly(&length, sizeof length)) return false;
  message->resize(length);
  return read_exactly(message->data(), message->size());
}

bool Channel::send_number(std::uint64_t value) { return write_exactly(&value, sizeof value); }

std::uint64_t Channel::receive_number() {
  std::uint64_t value = 0;
  return read_exactly(&value, sizeof value) ? value : 0;
}

namespace {

[[noreturn]] void run_child(const std::function<void(Channel&)>& body, Channel channel) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body(channel);
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

Child::Child(const std::function<void(Channel&)>& body) {
  auto [ours, theirs] = Channel::pair();
  channel_ = std::move(ours);
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    channel_ = Channel();
    run_child(body, std::move(theirs));
  }
  if (pid_ < 0) ADD_FAILURE() << "fork failed";
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int Child::wait() {
  const Deadline deadline = soon();
  int how = 0;
  while (!deadline.expired()) {
    const pid_t ended = waitpid(pid_, &how, WNOHANG);
    if (ended == pid_) {
      pid_ = -1;
      return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return -1;
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace hixl_rma::testing

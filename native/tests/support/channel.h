// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/descriptor.h"
#include "hixl_rma/memory.h"

namespace hixl_rma::testing {

/// One end of a Unix socket pair by which the two sides of a test talk, threads or processes.
/// Every read gives up when the patience is over, so that no test hangs.
class Channel {
 public:
  /// An end of nothing: every call fails.
  Channel() = default;
  static std::pair<Channel, Channel> pair();

  bool send(ByteSpan message);
  bool receive(Bytes* message);

  bool send_number(std::uint64_t value);
  /// 0 when nothing came.
  std::uint64_t receive_number();

 private:
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}
  bool read_exactly(void* to, std::size_t nbytes);
  bool write_exactly(const void* from, std::size_t nbytes);

  Descriptor socket_;
};

/// A forked peer. The body runs in the child, which then ends with 0, or with 1 when an expectation
/// failed there. To be made while the process has no other threads.
class Child {
 public:
  explicit Child(const std::function<void(Channel&)>& body);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Kills the child when it has not been waited for.
  ~Child();

  [[nodiscard]] Channel& channel() { return channel_; }
  [[nodiscard]] int pid() const { return pid_; }
  /// The exit status; -1 when a signal ended it or it did not end in time.
  int wait();
  void kill();

 private:
  Channel channel_;
  int pid_ = -1;
};

}  // namespace hixl_rma::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "base/own_thread.h"
#include "base/random.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

/// Hands the descriptors of shared segments to processes of the same user that know a segment's
/// token, over an abstract Unix socket: no file is left behind, whatever ends the process.
///
/// Protocol: the client connects and sends the 16 bytes of the token; the server checks SO_PEERCRED
/// and the token, answers with one byte (1 = granted, 0 = refused), the descriptor attached when
/// granted, and closes. The thread exists only while something is offered.
class SegmentServer {
 public:
  SegmentServer() = default;
  SegmentServer(const SegmentServer&) = delete;
  SegmentServer& operator=(const SegmentServer&) = delete;
  ~SegmentServer();

  /// Starts the thread with the first offer. Borrows the descriptor until withdraw().
  /// `on_request` is called on that thread, with the server locked, before a peer gets the
  /// descriptor; its error refuses it.
  Result<Token> offer(int fd, std::function<Status()> on_request = {});
  void withdraw(const Token& token);
  /// Name of the abstract socket; "" while nothing is offered.
  [[nodiscard]] std::string socket_name() const;

 private:
  Status start();
  void stop(std::unique_lock<std::mutex>& lock);
  void serve(int listener, int wake);
  void answer(int client);

  struct Offer {
    int fd;
    std::function<Status()> on_request;
  };

  mutable std::mutex mutex_;
  std::map<Token, Offer> offers_;
  std::string name_;
  Descriptor listener_;
  Descriptor wake_;
  OwnThread thread_;
};

/// Asks a SegmentServer for a segment. Errors: Unavailable, AccessDenied, Timeout.
Result<Descriptor> request_segment(const std::string& socket_name, const Token& token,
                                   const Deadline& deadline);

/// Whether segments can be handed over here at all: makes one, offers it, asks for it. Errors:
/// Unavailable with the reason.
Status try_segments();

}  // namespace hixl_rma

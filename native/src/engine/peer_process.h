// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "hixl_rma/memory.h"
#include "hixl_rma/status.h"

namespace hixl_rma {

/// By which other processes of the host see that this one has ended.
///
/// A socket that listens and never accepts: whoever connects waits in its queue and is hung up when
/// the last descriptor of the socket goes, which is when the process ends, however it ends. It
/// costs no thread and works across PID namespaces. A forked child closes its copy, or the parent's
/// death would go unseen for as long as the child lives.
class ProcessBeacon {
 public:
  /// The one of this process, alive while somebody holds it.
  static std::shared_ptr<ProcessBeacon> of_process();
  ProcessBeacon();
  ProcessBeacon(const ProcessBeacon&) = delete;
  ProcessBeacon& operator=(const ProcessBeacon&) = delete;
  ~ProcessBeacon();

  /// What PeerProcess::watch takes.
  [[nodiscard]] Bytes identity() const;

 private:
  Descriptor listener_;
  int fork_generation_ = 0;
  std::string name_;  // empty: no socket was to be had
};

/// Another process, watched for its end: by a descriptor of the process itself where the PID
/// namespace is shared, else by its beacon. On another host, or where neither can be had, nothing
/// is seen and gone() stays false.
/// Thread: any.
class PeerProcess {
 public:
  /// One object for one process, however many windows it shares with this one.
  /// Errors: ProtocolMismatch, PeerLost when it is gone already.
  static Result<std::shared_ptr<PeerProcess>> watch(ByteSpan identity);

  /// Whether it has ended. One system call; sticky.
  [[nodiscard]] bool gone();
  /// Readable, or hung up, once it has ended; -1 when nothing is watched.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
  std::atomic<bool> gone_{false};
};

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
#include "transport/cma/process_copy.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

namespace hixl_rma {
namespace {

// process_vm_readv(2): at most IOV_MAX elements each side; a transfer is cut at 0x7ffff000 bytes
// (read(2)), which shows as a short count and is continued like any other.
constexpr std::size_t kMaxPieces = 1024;

Status copy_error(int error, std::uint64_t done) {
  if (error == ESRCH) {
    return Status::from_errno(StatusCode::kPeerLost, "the peer process is gone", error);
  }
  if (error == EPERM || error == ENOSYS) {
    return Status::from_errno(StatusCode::kUnavailable, "cross-process copy was refused", error);
  }
  if (error == ENOMEM) {
    return Status::from_errno(StatusCode::kResourceExhausted, "cross-process copy failed", error);
  }
  return Status::from_errno(StatusCode::kAccessDenied,
                            "cross-process copy stopped after " + std::to_string(done) +
                                " bytes at a page that is absent or does not allow the access",
                            error);
}

// The pieces of one system call, consumed as the kernel reports progress.
class Batch {
 public:
  Batch(std::uint64_t base, std::span<const Piece> pieces) {
    for (const Piece& piece : pieces) {
      if (piece.nbytes == 0) continue;
      local_[count_] = {piece.local, piece.nbytes};
      remote_[count_] = {reinterpret_cast<void*>(static_cast<std::uintptr_t>(base + piece.offset)),
                         piece.nbytes};
      ++count_;
    }
  }

  [[nodiscard]] bool finished() const { return first_ == count_; }

  ssize_t call(pid_t pid, CopyDirection direction) {
    const auto n = static_cast<unsigned long>(count_ - first_);
    return direction == CopyDirection::kToPeer
               ? process_vm_writev(pid, &local_[first_], n, &remote_[first_], n, 0)
               : process_vm_readv(pid, &local_[first_], n, &remote_[first_], n, 0);
  }

  void consume(std::size_t nbytes) {
    while (nbytes > 0) {
      iovec& local = local_[first_];
      iovec& remote = remote_[first_];
      const std::size_t step = std::min(nbytes, local.iov_len);
      local = {static_cast<char*>(local.iov_base) + step, local.iov_len - step};
      remote = {static_cast<char*>(remote.iov_base) + step, remote.iov_len - step};
      nbytes -= step;
      if (local.iov_len == 0) ++first_;
    }
  }

 private:
  std::array<iovec, kMaxPieces> local_;  // filled up to count_
  std::array<iovec, kMaxPieces> remote_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

// One piece needs no tables: the case that latency counts for.
Status copy_single(pid_t pid, CopyDirection direction, std::uint64_t base, const Piece& piece) {
  std::size_t done = 0;
  while (done < piece.nbytes) {
    const iovec local{piece.local + done, piece.nbytes - done};
    const iovec remote{
        reinterpret_cast<void*>(static_cast<std::uintptr_t>(base + piece.offset + done)),
        piece.nbytes - done};
    const ssize_t moved = direction == CopyDirection::kToPeer
                              ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
                              : process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (moved <= 0) return copy_error(moved == 0 ? EFAULT : errno, done);
    done += static_cast<std::size_t>(moved);
  }
  return {};
}

}  // namespace

Status copy_across(pid_t pid, CopyDirection direction, std::uint64_t base,
                   std::span<const Piece> pieces) {
  if (pieces.size() == 1) return copy_single(pid, direction, base, pieces.front());
  std::uint64_t done = 0;
  while (!pieces.empty()) {
    const std::size_t n = std::min(pieces.size(), kMaxPieces);
    Batch batch(base, pieces.first(n));
    while (!batch.finished()) {
      const ssize_t moved = batch.call(pid, direction);
      if (moved <= 0) return copy_error(moved == 0 ? EFAULT : errno, done);
      batch.consume(static_cast<std::size_t>(moved));
      done += static_cast<std::uint64_t>(moved);
    }
    pieces = pieces.subspan(n);
  }
  return {};
}

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
//
// put, get and the accumulate family. Every call goes the same way: is the window usable, is the
// target alive, is an access epoch open, does the place lie inside the target's memory; then posts.
#include <algorithm>
#include <array>
#include <string>

#include "base/byte_units.h"
#include "window/failures.h"
#include "window/window.h"

namespace hixl_rma {
namespace {

constexpr std::size_t kBatch = 1024;

void merge_neighbours(std::vector<Piece>& pieces) {
  if (pieces.empty()) return;
  std::size_t last = 0;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    Piece& kept = pieces[last];
    const Piece& next = pieces[i];
    if (kept.local + kept.nbytes == next.local && kept.offset + kept.nbytes == next.offset) {
      kept.nbytes += next.nbytes;
    } else {
      pieces[++last] = next;
    }
  }
  pieces.resize(last + 1);
}

}  // namespace

Status Window::not_usable() const {
  if (fork_generation_ != fork_generation()) {
    return Status::error(StatusCode::kForked,
                         "the window belongs to the parent process: a forked child cannot use it");
  }
  return Status::error(StatusCode::kClosed, "the window was freed");
}

Status Window::check_target(int target) {
  if (Status status = usable(); !status.ok()) return status;
  if (target < 0 || target >= options_.size) {
    return Status::error(StatusCode::kOutOfRange, "target_rank " + std::to_string(target) +
                                                      " is not in 0 to " +
                                                      std::to_string(options_.size - 1));
  }
  refresh_lost();
  if (link(target).lost.load(std::memory_order_relaxed)) {
    return loss_of(target);
  }
  return {};
}

Status Window::range_error(int target, const std::string& displacement,
                           std::uint64_t nbytes) const {
  const Link& to = link(target);
  return Status::error(StatusCode::kOutOfRange,
                       std::to_string(nbytes) + " bytes at displacement " + displacement +
                           " (unit " + std::to_string(to.disp_unit) + ") do not lie inside the " +
                           std::to_string(to.nbytes) + " bytes of rank " + std::to_string(target))
      .with_peer(target);
}

Status Window::place_offset(int target, const TargetPlace& place, std::ptrdiff_t lowest,
                            std::ptrdiff_t highest, std::uint64_t* offset) const {
  const Link& to = link(target);
  const std::uint64_t displacement = place.displacement;
  const std::uint64_t unit = place.layout == nullptr ? to.disp_unit : 1;
  const auto below = static_cast<std::uint64_t>(-lowest);
  const auto length = static_cast<std::uint64_t>(highest - lowest);
  const std::uint64_t last = place.layout == nullptr ? to.last_displacement : to.nbytes;
  const std::uint64_t at = displacement * unit;
  if (displacement > last || below > at || !in_range(at - below, length, to.nbytes)) {
    return range_error(target, std::to_string(displacement), length);
  }
  *offset = at;
  return {};
}

Status Window::post_error(int target, const Status& status) {
  if (status.code() == StatusCode::kPeerLost) peers_->ended(target);
  refresh_lost();
  if (link(target).lost.load(std::memory_order_relaxed) && status.code() != StatusCode::kPeerLost) {
    if (peers_->was_silent(target)) return loss_of(target);
    return Status::error(StatusCode::kPeerLost, "rank " + std::to_string(target) +
                                                    " withdrew its memory: it left the window")
        .with_peer(target);
  }
  return status.with_transport(engine_->transport_name(link(target).data_transport))
      .with_peer(target);
}

template <class PostOperation>
Status Window::issue_post(Link& to, Issue& issue, PostOperation&& post) {
  if (to.inline_data) return post(nullptr).status;
  Completion& completion = issue.own != nullptr ? *issue.own : to.outstanding;
  for (;;) {
    completion.add();
    const PostResult posted = post(&completion);
    if (posted.state == Post::kPending) {
      issue.pending = true;
      return {};
    }
    completion.complete({});
    if (posted.state != Post::kAgain) return posted.status;
    engine_->idle();
  }
}

Status Window::refuse_displacement(int target, const std::string& displacement,
                                   std::uint64_t nbytes) {
  if (Status status = access(target); !status.ok()) return status;
  return range_error(target, displacement, nbytes);
}

Status Window::put(const std::byte* origin, std::size_t nbytes, int target,
                   std::uint64_t displacement, Issue& issue) {
  if (Status status = access(target); !status.ok()) return status;
  Piece piece{const_cast<std::byte*>(origin), 0, nbytes};
  if (Status status = place_offset(target, {displacement}, 0, static_cast<std::ptrdiff_t>(nbytes),
                                   &piece.offset);
      !status.ok()) {
    return status;
  }
  Link& to = link(target);
  const OperationTimer timer(to.puts, nbytes);
  if (nbytes == 0) return {};
  if (goes_behind(to, issue, nbytes)) {
    move_behind(target, true, std::span(&piece, 1), issue);
    return {};
  }
  Status status = issue_post(to, issue, [&](Completion* completion) {
    return to.data->put(*to.data_region, piece, completion);
  });
  return status.ok() ? status : post_error(target, status);
}

Status Window::get(std::byte* origin, std::size_t nbytes, int target, std::uint64_t displacement,
                   Issue& issue) {
  if (Status status = access(target); !status.ok()) return status;
  Piece piece{origin, 0, nbytes};
  if (Status status = place_offset(target, {displacement}, 0, static_cast<std::ptrdiff_t>(nbytes),
                                   &piece.offset);
      !status.ok()) {
    return status;
  }
  Link& to = link(target);
  const OperationTimer timer(to.gets, nbytes);
  if (nbytes == 0) return {};
  if (goes_behind(to, issue, nbytes)) {
    move_behind(target, false, std::span(&piece, 1), issue);
    return {};
  }
  Status status = issue_post(to, issue, [&](Completion* completion) {
    return to.data->get(*to.data_region, piece, completion);
  });
  return status.ok() ? status : post_error(target, status);
}

Status Window::move_pieces(int target, bool put, std::span<const Piece> pieces, Issue& issue) {
  if (pieces.empty()) return {};
  if (issue.behind) {
    move_behind(target, put, pieces, issue);
    return {};
  }
  return post_pieces(target, put, pieces, issue);
}

Status Window::post_pieces(int target, bool put, std::span<const Piece> pieces, Issue& issue) {
  Link& to = link(target);
  Status status = issue_post(to, issue, [&](Completion* completion) {
    return put ? to.data->put_v(*to.data_region, pieces, completion)
               : to.data->get_v(*to.data_region, pieces, completion);
  });
  return status.ok() ? status : post_error(target, status);
}

Status Window::put_array(OriginArray origin, int target, const TargetPlace& place, Issue& issue) {
  return move_array(origin, target, true, place, issue);
}

Status Window::get_array(OriginArray origin, int target, const TargetPlace& place, Issue& issue) {
  return move_array(origin, target, false, place, issue);
}

Status Window::move_array(OriginArray& origin, int target, bool put, const TargetPlace& place,
                          Issue& issue) {
  if (Status status = access(target); !status.ok()) return status;
  const std::size_t nbytes = origin.runs.total_bytes();
  StridedRuns there = place.layout != nullptr ? *place.layout : StridedRuns(nbytes);
  if (there.total_bytes() != nbytes) {
    return Status::error(StatusCode::kInvalidArgument,
                         "the origin has " + std::to_string(nbytes) +
                             " bytes, the selected target elements have " +
                             std::to_string(there.total_bytes()));
  }
  std::uint64_t base = 0;
  if (Status status = place_offset(target, place, there.lowest(), there.highest(), &base);
      !status.ok()) {
    return status;
  }
  Link& to = link(target);
  const OperationTimer timer(put ? to.puts : to.gets, nbytes);
  issue.behind = goes_behind(to, issue, nbytes);  // all of its batches or none
  std::array<Piece, kBatch> batch;
  std::size_t n = 0;
  while (!origin.runs.finished()) {
    const std::size_t step = std::min(origin.runs.run_left(), there.run_left());
    batch[n++] = {origin.base + origin.runs.position(),
                  base + static_cast<std::uint64_t>(there.position()), step};
    origin.runs.advance(step);
    there.advance(step);
    if (n < kBatch && !origin.runs.finished()) continue;
    if (Status status = move_pieces(target, put, std::span(batch.data(), n), issue); !status.ok()) {
      return status;
    }
    n = 0;
  }
  return {};
}

Status Window::locate(int target, std::uint64_t displacement, std::uint64_t nbytes,
                      std::uint64_t* offset) const {
  const Link& to = link(target);
  if (displacement > to.last_displacement ||
      !in_range(displacement * to.disp_unit, nbytes, to.nbytes)) {
    return range_error(target, std::to_string(displacement), nbytes);
  }
  *offset = displacement * to.disp_unit;
  return {};
}

Status Window::put_pieces(std::vector<Piece> pieces, int target, Issue& issue) {
  return move_list(pieces, target, true, issue);
}

Status Window::get_pieces(std::vector<Piece> pieces, int target, Issue& issue) {
  return move_list(pieces, target, false, issue);
}

Status Window::move_list(std::vector<Piece>& pieces, int target, bool put, Issue& issue) {
  if (Status status = access(target); !status.ok()) return status;
  const std::uint64_t nbytes = total_bytes(std::span<const Piece>(pieces));
  Link& to = link(target);
  const OperationTimer timer(put ? to.puts : to.gets, nbytes);
  merge_neighbours(pieces);
  issue.behind = goes_behind(to, issue, nbytes);
  return nbytes == 0 ? Status() : move_pieces(target, put, pieces, issue);
}

Status Window::accumulate(const ReduceRequest& request, OriginArray origin, OriginArray result,
                          int target, const TargetPlace& place, Issue& issue) {
  if (Status status = access(target); !status.ok()) return status;
  const std::size_t element = size_of(request.type);
  if (!is_supported(request.type, request.op)) {
    return Status::error(StatusCode::kInvalidType, "op '" + std::string(name_of(request.op)) +
                                                       "' has no meaning for " +
                                                       std::string(name_of(request.type)));
  }
  const bool has_origin = origin.base != nullptr;
  const bool has_result = result.base != nullptr;
  if (!has_origin && request.op != ReduceOp::kNoOp) {
    return Status::error(StatusCode::kInvalidArgument, "every op but no_op needs an origin");
  }
  const std::size_t nbytes = (has_origin ? origin : result).runs.total_bytes();
  StridedRuns there = place.layout != nullptr ? *place.layout : StridedRuns(nbytes);
  if (there.total_bytes() != nbytes ||
      (has_origin && has_result && result.runs.total_bytes() != nbytes)) {
    return Status::error(StatusCode::kInvalidArgument,
                         "origin, result and selected target elements must have equal sizes");
  }
  if (there.run_bytes() % element != 0) {
    return Status::error(StatusCode::kInvalidArgument,
                         "the selected target elements are not of the origin's type");
  }
  std::uint64_t base = 0;
  if (Status status = place_offset(target, place, there.lowest(), there.highest(), &base);
      !status.ok()) {
    return status;
  }
  Link& to = link(target);
  const OperationTimer timer(to.accumulates, nbytes);
  while (!there.finished()) {
    std::size_t step = there.run_left();
    if (has_origin) step = std::min(step, origin.runs.run_left());
    if (has_result) step = std::min(step, result.runs.run_left());
    Accumulate piece{request.type, request.op};
    piece.operand = has_origin ? origin.base + origin.runs.position() : nullptr;
    piece.result = has_result ? result.base + result.runs.position() : nullptr;
    piece.offset = base + static_cast<std::uint64_t>(there.position());
    piece.count = step / element;
    Status status = issue_post(to, issue, [&](Completion* completion) {
      return to.data->accumulate(*to.data_region, piece, completion);
    });
    if (!status.ok()) return post_error(target, status);
    there.advance(step);
    if (has_origin) origin.runs.advance(step);
    if (has_result) result.runs.advance(step);
  }
  return {};
}

Status Window::compare_and_swap(DataType type, const std::byte* desired, const std::byte* compare,
                                std::byte* result, int target, std::uint64_t displacement,
                                Issue& issue) {
  if (Status status = access(target); !status.ok()) {
    return status;
  }
  if (!is_swappable(type)) {
    return Status::error(
        StatusCode::kInvalidType,
        "compare_and_swap takes integers and bool, not " + std::string(name_of(type)));
  }
  ElementSwap swap{type, compare, desired, result};
  const auto element = static_cast<std::ptrdiff_t>(size_of(type));
  if (Status status = place_offset(target, {displacement}, 0, element, &swap.offset);
      !status.ok()) {
    return status;
  }
  Link& to = link(target);
  const OperationTimer timer(to.accumulates, static_cast<std::uint64_t>(element));
  Status status = issue_post(to, issue, [&](Completion* completion) {
    return to.data->swap_element(*to.data_region, swap, completion);
  });
  return status.ok() ? status : post_error(target, status);
}

Status Window::wait(const Completion& completion, const Deadline& deadline, int peer,
                    WaitKind kind) {
  for (;;) {
    refresh_lost();  // what a rank that died was asked for fires here
    const WaitEnd end = wait_until(kind, peer, deadline, [&] {
      engine_->progress();
      return completion.done() || closing_.load(std::memory_order_relaxed) || news_of_loss();
    });
    if (completion.done()) return outcome(completion);
    if (closing_.load()) {
      return Status::error(StatusCode::kClosed, "the window was freed by another thread");
    }
    if (end != WaitEnd::kReady) return waited(end);
  }
}

Status Window::post_flush(Link& to, FlushScope scope, Completion& completion) {
  for (;;) {
    completion.add();
    const PostResult posted = to.data->flush(scope, &completion);
    if (posted.state == Post::kPending) return {};
    completion.complete({});
    if (posted.status.code() == StatusCode::kClosed && !closed())
      return {};  // learn_lost() was there
    if (posted.state != Post::kAgain) return posted.status;
    engine_->idle();
  }
}

// The flush is one more outstanding operation, behind those of requests, too: whoever runs out of
// time leaves it behind, and nothing but the deadline bounds the wait.
Status Window::flush_pending(int target, FlushScope scope, const Deadline& deadline) {
  Link& to = link(target);
  if (scope == FlushScope::kLocal) {
    if (Status status = post_flush(to, scope, to.local_flushes); !status.ok()) return status;
    return wait(to.local_flushes, deadline, target, WaitKind::kFlush);
  }
  Status posted = post_flush(to, scope, to.outstanding);
  Status status = wait(to.outstanding, deadline, target, WaitKind::kFlush);
  if (!to.outstanding.done()) return status;
  release_held(to);
  Status failed = settled(to.outstanding.take_status());  // a failed operation is reported once
  return failed.ok() ? posted : failed;
}

// What another thread issued since it holds before or after this.
void Window::release_held(Link& to) {
  std::vector<Link::Held> released;
  std::lock_guard lock(to.publish_mutex);
  if (!to.outstanding.done()) return;
  released.swap(to.held);
  for (Link::Held& held : released) {
    if (held.own != nullptr && !held.own->done()) to.held.push_back(std::move(held));
  }
}

void Window::hold(int target, std::shared_ptr<void> memory, const Completion* own) {
  if (own != nullptr && own->done()) return;
  Link& to = link(target);
  std::vector<Link::Held> released;
  std::lock_guard lock(to.publish_mutex);
  to.held.push_back({std::move(memory), own});
  if (to.held.size() < to.held_check) return;
  released.swap(to.held);
  for (Link::Held& held : released) {
    if (held.own == nullptr || !held.own->done()) to.held.push_back(std::move(held));
  }
  to.held_check = std::max<std::size_t>(64, 2 * to.held.size());
}

Status Window::flush_rank(int rank, FlushScope scope, const Deadline& deadline) {
  Link& to = link(rank);
  if (!to.behind.done()) [[unlikely]] {
    Status status = wait(to.behind, deadline, rank, WaitKind::kFlush);
    if (!to.behind.done()) return status;
    release_held(to);
  }
  Status status =
      to.inline_data ? to.data->flush(scope, nullptr).status : flush_pending(rank, scope, deadline);
  return status.ok() ? status : post_error(rank, status);
}

Status Window::flush(int target, FlushScope scope, const Deadline& deadline) {
  if (target != -1) {
    if (!ready() || !known_alive(target)) [[unlikely]] {
      if (Status status = check_target(target); !status.ok()) return status;
    }
    if (Status status = epochs_.may_flush(target); !status.ok()) return status;
    return flush_rank(target, scope, deadline);
  }
  if (Status status = usable(); !status.ok()) return status;
  if (Status status = epochs_.may_flush(-1); !status.ok()) return status;
  Status first;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (link(rank).inline_data && link(rank).lost.load(std::memory_order_relaxed)) continue;
    Status status = flush_rank(rank, scope, deadline);
    if (left_pending(status)) return first.ok() ? status : first;
    keep_first(first, status);
  }
  return first;
}

}  // namespace hixl_rma

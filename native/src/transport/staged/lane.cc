// SPDX-License-Identifier: Apache-2.0
//
// How operations go through a lane. Slots are filled from the oldest operation that is not yet all
// in slots; the owner answers them in the same order, so operations complete in the order in which
// they were posted.
#include "transport/staged/lane.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/deadline.h"

namespace hixl_rma {
namespace {

/// How long close() waits for the one slot that the owner may be serving just then.
constexpr Nanoseconds kServingLimit = std::chrono::milliseconds(10);

Status error_of(SlotAnswer answer) {
  switch (answer) {
    case SlotAnswer::kDone:
      return {};
    case SlotAnswer::kOutOfRange:
      return Status::error(StatusCode::kOutOfRange,
                           "the owner found that the place lies outside its memory");
    case SlotAnswer::kReadOnly:
      return Status::error(StatusCode::kAccessDenied, "the owner's memory may only be read");
    case SlotAnswer::kMalformed:
      break;
  }
  return Status::error(StatusCode::kTransferFailed, "the owner could not make sense of a request");
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// busy lanes

void BusyLanes::add(std::shared_ptr<Lane> lane) {
  std::lock_guard lock(mutex_);
  lanes_.push_back(std::move(lane));
  count_.store(lanes_.size(), std::memory_order_release);
}

void BusyLanes::remove(const Lane* lane) {
  std::lock_guard lock(mutex_);
  std::erase_if(lanes_, [&](const auto& known) { return known.get() == lane; });
  count_.store(lanes_.size(), std::memory_order_release);
}

std::size_t BusyLanes::progress() {
  if (!any()) return 0;
  std::vector<std::shared_ptr<Lane>> lanes;  // a lane takes itself off the list meanwhile
  {
    std::lock_guard lock(mutex_);
    lanes = lanes_;
  }
  std::size_t moved = 0;
  for (const auto& lane : lanes) moved += lane->progress();
  return moved;
}

bool LaneOperation::uses_memory() const {
  if (kind == Kind::kFlush) return false;
  const bool returns = kind == Kind::kGet || kind == Kind::kSwap ||
                       (kind == Kind::kAccumulate && accumulate.result != nullptr);
  return !filled || (returns && in_flight != 0);
}

// ------------------------------------------------------------------------------------------------
// claiming and leaving

namespace {

Result<std::size_t> claim_index(StagingHeader& header) {
  if (header.closed.load(std::memory_order_acquire) != 0) {
    return Status::error(StatusCode::kStale, "the owner has withdrawn the memory");
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    std::uint32_t free = 0;
    // acquire; pairs with the release in leave(): the lane is as its last origin left it
    if (header.claimed[i].load(std::memory_order_relaxed) == 0 &&
        header.claimed[i].compare_exchange_strong(free, 1, std::memory_order_acquire,
                                                  std::memory_order_relaxed)) {
      return i;
    }
  }
  return Status::error(StatusCode::kResourceExhausted,
                       "all " + std::to_string(kLanes) +
                           " lanes of the owner's staging buffer are taken: fewer processes can "
                           "reach memory of its own than there are");
}

}  // namespace

Result<std::shared_ptr<Lane>> Lane::claim(int fd, std::shared_ptr<BusyLanes> busy) {
  auto first = SharedSegment::map(fd, 0, kLargestPage);
  if (!first.ok()) return first.status();
  auto* header = reinterpret_cast<StagingHeader*>(first.value()->data());
  auto index = claim_index(*header);
  if (!index.ok()) return index.status();
  auto second = SharedSegment::map(fd, lane_offset(index.value()), kLaneBytes);
  if (!second.ok()) {
    header->claimed[index.value()].store(0, std::memory_order_release);
    return second.status();
  }
  const LaneView view(second.value()->data());
  return std::shared_ptr<Lane>(
      new Lane(first.take(), second.take(), header, view, index.value(), std::move(busy)));
}

Result<std::shared_ptr<Lane>> Lane::claim(const std::shared_ptr<SharedSegment>& whole,
                                          std::shared_ptr<BusyLanes> busy) {
  auto* header = reinterpret_cast<StagingHeader*>(whole->data());
  auto index = claim_index(*header);
  if (!index.ok()) return index.status();
  const LaneView view(whole->data() + lane_offset(index.value()));
  return std::shared_ptr<Lane>(
      new Lane(whole, nullptr, header, view, index.value(), std::move(busy)));
}

Lane::Lane(std::shared_ptr<SharedSegment> first, std::shared_ptr<SharedSegment> second,
           StagingHeader* header, LaneView view, std::size_t index, std::shared_ptr<BusyLanes> busy)
    : first_(std::move(first)),
      second_(std::move(second)),
      header_(header),
      view_(view),
      index_(index),
      busy_lanes_(std::move(busy)),
      next_(operations_.end()),
      oldest_(view.control().served.load(std::memory_order_relaxed) % kSlots) {}

void Lane::leave() {
  if (fork_generation_ != fork_generation()) return;  // the lane is the parent's
  close(nullptr, Status::error(StatusCode::kCanceled, "the region was given up"));
  std::lock_guard lock(mutex_);
  left_ = true;
  reap();
  // A lane in which something is still being served stays taken until its region goes.
  if (in_flight_ != 0) return;
  // release; pairs with the acquire in claim_index()
  header_->claimed[index_].store(0, std::memory_order_release);
}

bool Lane::closed_by_owner() const {
  // acquire; pairs with the release in LaneService::stop(): every answer there is can be seen now
  return header_->closed.load(std::memory_order_acquire) != 0;
}

PostResult Lane::refuse() const {
  return left_ ? Status::error(StatusCode::kNotRegistered, "the region was given up")
               : Status::error(StatusCode::kStale, "the target has withdrawn the memory");
}

// ------------------------------------------------------------------------------------------------
// posting

PostResult Lane::post(LaneOperation operation) {
  std::lock_guard lock(mutex_);
  if (left_ || closed_by_owner()) return refuse();
  if (spare_.empty()) spare_.emplace_back();
  spare_.front() = std::move(operation);
  operations_.splice(operations_.end(), spare_, spare_.begin());
  if (next_ == operations_.end()) next_ = std::prev(operations_.end());
  if (operations_.back().kind == LaneOperation::Kind::kFlush &&
      operations_.back().scope == FlushScope::kLocal) {
    ++local_flushes_;
  }
  set_busy(true);
  reap();  // fires nothing
  fill();
  return Post::kPending;
}

bool Lane::holds_up(FlushScope scope) const {
  std::lock_guard lock(mutex_);
  if (scope == FlushScope::kRemote) return !operations_.empty();
  return std::ranges::any_of(operations_, &LaneOperation::uses_memory);
}

PostResult Lane::flush(FlushScope scope, Completion* completion, const void* poster) {
  if (!holds_up(scope)) return Post::kDone;
  LaneOperation operation;
  operation.kind = LaneOperation::Kind::kFlush;
  operation.scope = scope;
  operation.completion = completion;
  operation.poster = poster;
  operation.filled = true;
  return post(std::move(operation));
}

void Lane::set_busy(bool busy) {
  if (busy == busy_) return;
  busy_ = busy;
  if (busy) {
    busy_lanes_->add(shared_from_this());
  } else {
    busy_lanes_->remove(this);
  }
}

// ------------------------------------------------------------------------------------------------
// taking answers

std::size_t Lane::reap() {
  std::size_t taken = 0;
  while (in_flight_ != 0 &&
         // acquire; pairs with the release of the answer
         slot(oldest_).state.load(std::memory_order_acquire) == SlotState::kAnswered) {
    take_answer(oldest_);
    slot(oldest_).state.store(SlotState::kEmpty, std::memory_order_relaxed);
    oldest_ = (oldest_ + 1) % kSlots;
    --in_flight_;
    ++taken;
  }
  return taken;
}

void Lane::take_answer(std::size_t i) {
  Use& use = uses_[i];
  if (use.operation == nullptr) return;  // canceled meanwhile
  LaneOperation& operation = *std::exchange(use.operation, nullptr);
  --operation.in_flight;
  Status answer = error_of(slot(i).answer.load(std::memory_order_relaxed));
  if (!answer.ok()) {
    if (operation.outcome.ok()) operation.outcome = std::move(answer);
    operation.filled = true;  // the rest of it is not asked for
    return;
  }
  for (const Piece& piece : use.returns) {
    std::memcpy(piece.local, view_.payload(i) + piece.offset, piece.nbytes);
  }
}

void Lane::fail_all() {
  const Status reason =
      Status::error(StatusCode::kStale, "the target withdrew the memory before it was done");
  for (Use& use : uses_) use.operation = nullptr;
  in_flight_ = 0;
  for (LaneOperation& operation : operations_) {
    const bool unfinished = !operation.filled || operation.in_flight != 0;
    operation.filled = true;
    operation.in_flight = 0;
    if (unfinished && operation.outcome.ok()) operation.outcome = reason;
  }
  next_ = operations_.end();
}

std::size_t Lane::fire_local_flushes() {
  std::size_t fired = 0;
  bool clean = true;
  for (auto& operation : operations_) {
    if (local_flushes_ == 0 || !clean) break;
    clean = !operation.uses_memory();
    if (operation.kind != LaneOperation::Kind::kFlush || operation.scope != FlushScope::kLocal ||
        operation.completion == nullptr) {
      continue;
    }
    std::exchange(operation.completion, nullptr)->complete({});
    --local_flushes_;
    ++fired;
  }
  return fired;
}

std::size_t Lane::fire() {
  std::size_t fired = fire_local_flushes();
  while (!operations_.empty()) {
    LaneOperation& front = operations_.front();
    if (!front.filled || front.in_flight != 0) break;
    if (next_ == operations_.begin()) ++next_;
    if (front.completion != nullptr) {
      front.completion->complete(front.outcome);
      ++fired;
    }
    recycle(operations_.begin());
  }
  if (operations_.empty()) set_busy(false);
  return fired;
}

void Lane::recycle(Operations::iterator operation) {
  constexpr std::size_t kSpare = 64;
  *operation = LaneOperation();
  if (spare_.size() < kSpare) {
    spare_.splice(spare_.begin(), operations_, operation);
  } else {
    operations_.erase(operation);
  }
}

std::size_t Lane::progress() {
  if (fork_generation_ != fork_generation()) return 0;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;  // somebody else is at it
  const bool closed = closed_by_owner();
  std::size_t moved = reap();
  if (closed) {
    fail_all();
  } else {
    fill();
  }
  return moved + fire();
}

// ------------------------------------------------------------------------------------------------
// cancelling

// The newest slots go back while the owner has not begun with them.
void Lane::withdraw_slots(const void* poster) {
  const auto asked = [&](const LaneOperation* operation) {
    return operation == nullptr || poster == nullptr || operation->poster == poster;
  };
  while (in_flight_ != 0) {
    const std::size_t newest = (oldest_ + in_flight_ - 1) % kSlots;
    SlotState expected = SlotState::kPosted;
    if (!asked(uses_[newest].operation) ||
        !slot(newest).state.compare_exchange_strong(
            expected, SlotState::kEmpty, std::memory_order_acquire, std::memory_order_relaxed)) {
      break;
    }
    if (LaneOperation* operation = std::exchange(uses_[newest].operation, nullptr)) {
      --operation->in_flight;
    }
    --in_flight_;
  }
  const Deadline deadline = Deadline::after(kServingLimit);
  for (std::size_t i = 0; i < in_flight_; ++i) {
    const std::size_t at = (oldest_ + i) % kSlots;
    if (!asked(uses_[at].operation)) continue;
    while (slot(at).state.load(std::memory_order_acquire) == SlotState::kServing &&
           !closed_by_owner() && !deadline.expired()) {
      sched_yield();
    }
  }
}

void Lane::close(const void* poster, const Status& reason) {
  if (fork_generation_ != fork_generation()) return;
  std::lock_guard lock(mutex_);
  withdraw_slots(poster);
  const auto asked = [&](const LaneOperation& operation) {
    return poster == nullptr || operation.poster == poster;
  };
  for (Use& use : uses_) {
    if (use.operation != nullptr && asked(*use.operation)) use.operation = nullptr;
  }
  for (auto it = operations_.begin(); it != operations_.end();) {
    const auto operation = it++;
    if (!asked(*operation)) continue;
    if (next_ == operation) next_ = it;
    if (operation->completion != nullptr) {
      operation->completion->complete(reason);
      if (operation->kind == LaneOperation::Kind::kFlush &&
          operation->scope == FlushScope::kLocal) {
        --local_flushes_;
      }
    }
    recycle(operation);
  }
  if (operations_.empty()) set_busy(false);
}

}  // namespace hixl_rma

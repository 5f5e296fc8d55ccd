// SPDX-License-Identifier: Apache-2.0
#include "window/window_lock.h"

#include <sched.h>

#include <cstddef>

#include "base/cpu.h"

namespace hixl_rma {
namespace {

constexpr std::uint64_t kState = offsetof(ControlHeader, lock_state);
constexpr std::uint64_t kGuard = offsetof(ControlHeader, lock_guard);
constexpr std::uint64_t kTicket = offsetof(ControlHeader, lock_ticket);
constexpr std::uint64_t kRequest = offsetof(PeerWords, lock_request);
constexpr std::uint64_t kGrant = offsetof(PeerWords, lock_grant);
constexpr std::uint64_t kShared = offsetof(PeerWords, lock_shared);

// lock_state: bits 0..15 exclusive holder (rank + 1), 16..31 shared holders, 32..47 waiters, 48..63
// mark of the last grant.
constexpr std::uint64_t kOneShared = std::uint64_t{1} << 16;
constexpr std::uint64_t kOneWaiter = std::uint64_t{1} << 32;
constexpr std::uint64_t kExclusiveMask = 0xffff;
constexpr std::uint64_t kSharedMask = std::uint64_t{0xffff} << 16;
constexpr std::uint64_t kWaitersMask = std::uint64_t{0xffff} << 32;
constexpr std::uint64_t kMarkMask = std::uint64_t{0xffff} << 48;

constexpr bool exclusively_held(std::uint64_t state) { return (state & kExclusiveMask) != 0; }
constexpr bool held(std::uint64_t state) { return (state & (kExclusiveMask | kSharedMask)) != 0; }
constexpr std::uint64_t waiters(std::uint64_t state) { return (state & kWaitersMask) / kOneWaiter; }

// lock_request: mode, ticket, and what was decided about it.
constexpr std::uint64_t kGranted = std::uint64_t{1} << 62;
constexpr std::uint64_t kWithdrawn = std::uint64_t{1} << 63;

constexpr std::uint64_t make_request(std::uint64_t ticket, bool exclusive) {
  return ticket << 1 | (exclusive ? 1U : 0U);
}
constexpr bool wants_exclusive(std::uint64_t request) { return (request & 1) != 0; }
constexpr std::uint64_t ticket_of(std::uint64_t request) {
  return (request & ~(kGranted | kWithdrawn)) >> 1;
}

// What the state says of the last grant: never 0, and another for each of 65,535 tickets in a row.
constexpr std::uint64_t mark_of(std::uint64_t request) {
  return (ticket_of(request) % 0xffff + 1) << 48;
}

// lock_guard: bits 0..31 who is inside (rank + 1), bit 32: look once more before you leave.
constexpr std::uint64_t kLookAgain = std::uint64_t{1} << 32;
constexpr std::uint64_t inside(std::uint64_t guard) { return guard & (kLookAgain - 1); }

}  // namespace

Status WindowLock::acquire(std::size_t target, bool exclusive, const Deadline& deadline,
                           const Wait& wait) {
  bool acquired = false;
  if (Status status = try_now(target, exclusive, &acquired); !status.ok() || acquired) {
    return status;
  }
  std::uint64_t request = 0;
  if (Status status = enqueue(target, exclusive, deadline, &request); !status.ok()) return status;
  const Word& grant = own_.peer(target).lock_grant;
  const std::uint64_t ticket = ticket_of(request);
  Status waited = wait([&] { return grant.load(std::memory_order_acquire) >= ticket; });
  if (waited.ok()) return {};
  bool granted = false;
  if (Status status = withdraw(target, request, &granted); !status.ok()) return status;
  if (!granted) return waited;
  if (waited.code() == StatusCode::kTimeout) return {};  // it came with the last tick
  if (Status status = release(target, exclusive); !status.ok()) return status;
  return waited;
}

Status WindowLock::try_now(std::size_t target, bool exclusive, bool* acquired) {
  const ControlLink& link = links_[target];
  const std::uint64_t shared_word = layout_.peer(rank_) + kShared;
  std::uint64_t state = 0;
  if (Status status = link.load(kState, &state); !status.ok()) return status;
  while (waiters(state) == 0 && (exclusive ? !held(state) : !exclusively_held(state))) {
    const std::uint64_t desired = exclusive ? state | (rank_ + 1) : state + kOneShared;
    if (!exclusive) {
      if (Status status = link.store(shared_word, 1); !status.ok()) return status;
    }
    std::uint64_t seen = 0;
    if (Status status = link.compare_swap(kState, state, desired, &seen); !status.ok()) {
      return status;
    }
    if (seen == state) {
      *acquired = true;
      return {};
    }
    state = seen;
  }
  return exclusive ? Status() : link.store(shared_word, 0);
}

Status WindowLock::enqueue(std::size_t target, bool exclusive, const Deadline& deadline,
                           std::uint64_t* request) {
  const ControlLink& link = links_[target];
  const std::uint64_t word = layout_.peer(rank_) + kRequest;
  if (Status status = enter(target, deadline); !status.ok()) return status;
  std::uint64_t ticket = 0;
  std::uint64_t before = 0;  // not 0: a request that was withdrawn, and that nobody has cleared yet
  Status status = link.fetch_add(kTicket, 1, &ticket);
  *request = make_request(ticket + 1, exclusive);
  if (status.ok()) status = link.load(word, &before);
  if (status.ok()) status = link.store(word, *request);
  if (status.ok() && before == 0) status = change_state(target, kOneWaiter, nullptr);
  if (status.ok()) status = grant_waiters(target);
  Status left = leave(target);
  return status.ok() ? left : status;
}

// Needs no guard, so that a call ends in time whatever became of who is inside.
Status WindowLock::withdraw(std::size_t target, std::uint64_t request, bool* granted) {
  std::uint64_t seen = 0;
  if (Status status = links_[target].compare_swap(layout_.peer(rank_) + kRequest, request,
                                                  request | kWithdrawn, &seen);
      !status.ok()) {
    return status;
  }
  *granted = seen != request;
  return *granted ? Status() : serve(target);  // those behind may go now
}

Status WindowLock::release(std::size_t target, bool exclusive) {
  std::uint64_t state = 0;
  const std::uint64_t mine = exclusive ? rank_ + 1 : kOneShared;
  if (Status status = change_state(target, 0 - mine, &state); !status.ok()) return status;
  if (!exclusive) {
    // Last: who dies before this has a name as a holder, though it holds nothing. The other way
    // round it would hold without a name, and whoever waited for it would never learn of its death.
    if (Status status = links_[target].store(layout_.peer(rank_) + kShared, 0); !status.ok()) {
      return status;
    }
  }
  return waiters(state) == 0 || held(state) ? Status() : serve(target);
}

Status WindowLock::recover(std::size_t target, const Deadline& deadline) {
  if (Status status = enter(target, deadline); !status.ok()) return status;
  Status status = grant_waiters(target);
  Status left = leave(target);
  return status.ok() ? left : status;
}

Status WindowLock::holds(std::size_t target, std::size_t rank, bool exclusive, bool* held) {
  std::uint64_t state = 0;
  std::uint64_t shared = 0;
  if (Status status = links_[target].load(kState, &state); !status.ok()) return status;
  if (Status status = links_[target].load(layout_.peer(rank) + kShared, &shared); !status.ok()) {
    return status;
  }
  *held = (state & kExclusiveMask) == rank + 1 || (exclusive && shared != 0);
  return {};
}

Status WindowLock::grant_waiters(std::size_t target) {
  for (;;) {
    std::size_t waiter = 0;
    std::uint64_t request = 0;
    if (Status status = first_waiter(target, &waiter, &request); !status.ok()) return status;
    if (request == 0) return {};
    bool done = false;
    Status status = (request & kWithdrawn) != 0 || patience_.ended(waiter + 1)
                        ? drop(target, waiter, &done)
                        : hand_over(target, waiter, request, &done);
    if (!status.ok() || !done) return status;
  }
}

Status WindowLock::drop(std::size_t target, std::size_t waiter, bool* done) {
  *done = true;
  if (Status status = links_[target].store(layout_.peer(waiter) + kRequest, 0); !status.ok()) {
    return status;
  }
  return change_state(target, 0 - kOneWaiter, nullptr);
}

Status WindowLock::first_waiter(std::size_t target, std::size_t* waiter, std::uint64_t* request) {
  *request = 0;
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    std::uint64_t found = 0;
    if (Status status = links_[target].load(layout_.peer(rank) + kRequest, &found); !status.ok()) {
      return status;
    }
    if (found != 0 && (*request == 0 || ticket_of(found) < ticket_of(*request))) {
      *request = found;
      *waiter = rank;
    }
  }
  return {};
}

Status WindowLock::hand_over(std::size_t target, std::size_t waiter, std::uint64_t request,
                             bool* granted) {
  const ControlLink& link = links_[target];
  const bool exclusive = wants_exclusive(request);
  std::uint64_t state = 0;
  if (Status status = link.load(kState, &state); !status.ok()) return status;
  for (;;) {
    if (exclusive ? held(state) : exclusively_held(state)) return {};
    const std::uint64_t add = exclusive ? waiter + 1 : kOneShared;
    const std::uint64_t next = ((state + add - kOneWaiter) & ~kMarkMask) | mark_of(request);
    std::uint64_t seen = 0;
    if (Status status = link.compare_swap(kState, state, next, &seen); !status.ok()) return status;
    if (seen == state) break;
    state = seen;
  }
  *granted = true;
  return tell(target, waiter, request);
}

// The state has the waiter as a holder, and its mark. The request word decides between a grant and
// a withdrawal; a rank that died anywhere in here is followed by one that does the rest.
Status WindowLock::tell(std::size_t target, std::size_t waiter, std::uint64_t request) {
  const ControlLink& link = links_[target];
  const std::uint64_t word = layout_.peer(waiter) + kRequest;
  const std::uint64_t shared_word = layout_.peer(waiter) + kShared;
  const bool exclusive = wants_exclusive(request);
  Status status;
  if ((request & kGranted) == 0) {
    if (!exclusive) status = link.store(shared_word, 1);
    std::uint64_t seen = 0;
    if (status.ok()) status = link.compare_swap(word, request, request | kGranted, &seen);
    if (!status.ok()) return status;
    if (seen != request) return take_back(target, waiter, request);
  }
  status = links_[waiter].store(layout_.peer(target) + kGrant, ticket_of(request));
  return status.ok() ? link.store(word, 0) : status;
}

Status WindowLock::take_back(std::size_t target, std::size_t waiter, std::uint64_t request) {
  const ControlLink& link = links_[target];
  const bool exclusive = wants_exclusive(request);
  std::uint64_t state = 0;
  Status status = exclusive ? Status() : link.store(layout_.peer(waiter) + kShared, 0);
  if (status.ok()) status = link.load(kState, &state);
  while (status.ok()) {
    const std::uint64_t less = exclusive ? waiter + 1 : kOneShared;
    std::uint64_t seen = 0;
    status = link.compare_swap(kState, state, (state - less) & ~kMarkMask, &seen);
    if (seen == state) break;
    state = seen;
  }
  return status.ok() ? link.store(layout_.peer(waiter) + kRequest, 0) : status;
}

// The guard was taken from a rank that died inside.
Status WindowLock::repair(std::size_t target) {
  const ControlLink& link = links_[target];
  std::uint64_t waiting = 0;
  std::uint64_t state = 0;
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    std::uint64_t request = 0;
    Status status = link.load(layout_.peer(rank) + kRequest, &request);
    if (status.ok()) status = link.load(kState, &state);
    if (!status.ok()) return status;
    if (request == 0) continue;
    if ((state & kMarkMask) != mark_of(request)) {
      ++waiting;
    } else {
      status = (request & kWithdrawn) != 0 ? take_back(target, rank, request)
                                           : tell(target, rank, request);
      if (!status.ok()) return status;
    }
  }
  // Waiters are counted under the guard alone.
  if (Status status = link.load(kState, &state); !status.ok()) return status;
  return change_state(target, (waiting - waiters(state)) * kOneWaiter, nullptr);
}

// ------------------------------------------------------------------------------------------------
// the guard

Status WindowLock::enter(std::size_t target, const Deadline& deadline) {
  constexpr unsigned kSpins = 100;
  constexpr unsigned kYields = 1000;
  const ControlLink& link = links_[target];
  for (unsigned attempt = 0;; ++attempt) {
    std::uint64_t holder = 0;
    if (Status status = link.compare_swap(kGuard, 0, rank_ + 1, &holder); !status.ok()) {
      return status;
    }
    if (holder == 0) return {};
    if (attempt < kSpins) {
      cpu_relax();
    } else if (attempt < kSpins + kYields) {
      sched_yield();  // the holder may have lost its core
    } else if (patience_.ended(inside(holder))) {
      std::uint64_t seen = 0;
      Status status = link.compare_swap(kGuard, holder, rank_ + 1, &seen);
      if (!status.ok()) return status;
      if (seen != holder) continue;
      status = repair(target);
      if (status.ok()) return status;
      (void)leave(target);
      return status;
    } else if (Status status = patience_.pause(deadline, attempt - kSpins - kYields);
               !status.ok()) {
      return status;
    }
  }
}

Status WindowLock::leave(std::size_t target) {
  const ControlLink& link = links_[target];
  const std::uint64_t mine = rank_ + 1;
  Status granted;
  for (;;) {
    std::uint64_t seen = 0;
    if (Status status = link.compare_swap(kGuard, mine, 0, &seen); !status.ok()) return status;
    if (seen == mine) return granted;
    // Somebody came by meanwhile and left its work to us.
    if (Status status = link.compare_swap(kGuard, seen, mine, &seen); !status.ok()) return status;
    granted = grant_waiters(target);
  }
}

// Never waits: who is inside the guard does it, or it died there and the waiters recover().
Status WindowLock::serve(std::size_t target) {
  const ControlLink& link = links_[target];
  std::uint64_t guard = 0;
  for (;;) {
    std::uint64_t seen = 0;
    const std::uint64_t next = guard == 0 ? rank_ + 1 : guard | kLookAgain;
    if (Status status = link.compare_swap(kGuard, guard, next, &seen); !status.ok()) return status;
    if (seen == guard) break;
    guard = seen;
  }
  if (guard != 0) return {};
  Status status = grant_waiters(target);
  Status left = leave(target);
  return status.ok() ? left : status;
}

Status WindowLock::change_state(std::size_t target, std::uint64_t add, std::uint64_t* after) {
  std::uint64_t before = 0;
  Status status = links_[target].fetch_add(kState, add, &before);
  if (after != nullptr) *after = before + add;
  return status;
}

}  // namespace hixl_rma

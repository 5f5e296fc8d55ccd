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

// lock_state: bits 0..15 exclusive holder (rank + 1), 16..31 shared holders, 32..47 waiters.
constexpr std::uint64_t kOneShared = std::uint64_t{1} << 16;
constexpr std::uint64_t kOneWaiter = std::uint64_t{1} << 32;
constexpr std::uint64_t kExclusiveMask = 0xffff;
constexpr std::uint64_t kSharedMask = std::uint64_t{0xffff} << 16;

constexpr bool exclusively_held(std::uint64_t state) { return (state & kExclusiveMask) != 0; }
constexpr bool held(std::uint64_t state) { return (state & (kExclusiveMask | kSharedMask)) != 0; }
constexpr bool has_waiters(std::uint64_t state) { return state >= kOneWaiter; }

// lock_request: ticket and mode.
constexpr std::uint64_t make_request(std::uint64_t ticket, bool exclusive) {
  return ticket << 1 | (exclusive ? 1U : 0U);
}
constexpr bool wants_exclusive(std::uint64_t request) { return (request & 1) != 0; }
constexpr std::uint64_t ticket_of(std::uint64_t request) { return request >> 1; }

}  // namespace

Status WindowLock::acquire(std::size_t target, bool exclusive, const Wait& wait) {
  bool acquired = false;
  if (Status status = try_now(target, exclusive, &acquired); !status.ok() || acquired) {
    return status;
  }
  std::uint64_t ticket = 0;
  if (Status status = enqueue(target, exclusive, &ticket); !status.ok()) return status;
  const Word& grant = own_.peer(target).lock_grant;
  Status waited = wait([&] { return grant.load(std::memory_order_acquire) >= ticket; });
  if (waited.ok()) return {};
  bool granted = false;
  if (Status status = withdraw(target, &granted, ticket); !status.ok()) return status;
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
  while (!has_waiters(state) && (exclusive ? !held(state) : !exclusively_held(state))) {
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

Status WindowLock::enqueue(std::size_t target, bool exclusive, std::uint64_t* ticket) {
  const ControlLink& link = links_[target];
  if (Status status = guard(target); !status.ok()) return status;
  Status status = link.fetch_add(kTicket, 1, ticket);
  ++*ticket;
  if (status.ok()) {
    status = link.store(layout_.peer(rank_) + kRequest, make_request(*ticket, exclusive));
  }
  if (status.ok()) status = change_state(target, kOneWaiter, nullptr);
  if (status.ok()) status = grant_waiters(target);
  Status unguarded = unguard(target);
  return status.ok() ? unguarded : status;
}

Status WindowLock::withdraw(std::size_t target, bool* granted, std::uint64_t ticket) {
  if (Status status = guard(target); !status.ok()) return status;
  *granted = own_.peer(target).lock_grant.load(std::memory_order_acquire) >= ticket;
  Status status;
  if (!*granted) {
    status = links_[target].store(layout_.peer(rank_) + kRequest, 0);
    if (status.ok()) status = change_state(target, 0 - kOneWaiter, nullptr);
    if (status.ok()) status = grant_waiters(target);  // those behind may go now
  }
  Status unguarded = unguard(target);
  return status.ok() ? unguarded : status;
}

Status WindowLock::release(std::size_t target, bool exclusive) {
  if (!exclusive) {
    if (Status status = links_[target].store(layout_.peer(rank_) + kShared, 0); !status.ok()) {
      return status;
    }
  }
  std::uint64_t state = 0;
  const std::uint64_t mine = exclusive ? rank_ + 1 : kOneShared;
  if (Status status = change_state(target, 0 - mine, &state); !status.ok()) return status;
  if (!has_waiters(state) || held(state)) return {};
  if (Status status = guard(target); !status.ok()) return status;
  Status status = grant_waiters(target);
  Status unguarded = unguard(target);
  return status.ok() ? unguarded : status;
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
    bool granted = false;
    if (Status status = hand_over(target, waiter, request, &granted); !status.ok()) return status;
    if (!granted) return {};
  }
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
    std::uint64_t seen = 0;
    if (Status status = link.compare_swap(kState, state, state + add - kOneWaiter, &seen);
        !status.ok()) {
      return status;
    }
    if (seen == state) break;
    state = seen;
  }
  Status status;
  if (!exclusive) status = link.store(layout_.peer(waiter) + kShared, 1);
  if (status.ok()) status = link.store(layout_.peer(waiter) + kRequest, 0);
  if (status.ok()) {
    status = links_[waiter].store(layout_.peer(target) + kGrant, ticket_of(request));
  }
  *granted = status.ok();
  return status;
}

Status WindowLock::guard(std::size_t target) {
  for (int attempt = 0;; ++attempt) {
    std::uint64_t holder = 0;
    if (Status status = links_[target].compare_swap(kGuard, 0, rank_ + 1, &holder); !status.ok()) {
      return status;
    }
    if (holder == 0) return {};
    if (attempt < 100) {
      cpu_relax();
    } else {
      sched_yield();  // the holder may have lost its core
    }
  }
}

Status WindowLock::unguard(std::size_t target) { return links_[target].store(kGuard, 0); }

Status WindowLock::change_state(std::size_t target, std::uint64_t add, std::uint64_t* after) {
  std::uint64_t before = 0;
  Status status = links_[target].fetch_add(kState, add, &before);
  if (after != nullptr) *after = before + add;
  return status;
}

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "hixl_rma/status.h"
#include "window/control_layout.h"
#include "window/control_link.h"

namespace hixl_rma {

/// The passive-target lock of each rank, kept in that rank's control memory.
///
/// `lock_state` packs the exclusive holder (rank + 1), the number of shared holders and the number
/// of waiters; each shared holder also has its own `lock_shared` word, so every holder has a name.
/// While nobody waits, one compare-and-swap takes or gives back the lock. Otherwise a request goes
/// into the queue: a ticket in the origin's `lock_request` word at the target. Whoever releases, or
/// joins the queue, grants in ticket order under the short `lock_guard`, and writes the granted
/// ticket into the waiter's own control memory: a waiter looks at nothing but its own memory.
///
/// NOTE [no grant is lost]
/// A waiter raises the count of waiters first and then, still under the guard, grants what can be
/// granted. A holder gives its part back first and then looks at the count. So either the holder
/// sees the waiter and grants, or the waiter sees that the lock is free.
class WindowLock {
 public:
  WindowLock(std::span<const ControlLink> links, const ControlView& own,
             const ControlLayout& layout, int rank)
      : links_(links), own_(own), layout_(layout), rank_(static_cast<std::size_t>(rank)) {}

  /// How acquire waits: returns Ok when the predicate held, else why not.
  using Wait = std::function<Status(const std::function<bool()>& ready)>;

  /// Errors of the wait withdraw the request; a grant that came meanwhile counts unless the wait
  /// was interrupted.
  Status acquire(std::size_t target, bool exclusive, const Wait& wait);
  Status release(std::size_t target, bool exclusive);
  /// Whether `rank` holds the target's lock in a way that keeps an exclusive (or shared) request
  /// out.
  Status holds(std::size_t target, std::size_t rank, bool exclusive, bool* held);

 private:
  Status try_now(std::size_t target, bool exclusive, bool* acquired);
  Status enqueue(std::size_t target, bool exclusive, std::uint64_t* ticket);
  Status withdraw(std::size_t target, bool* granted, std::uint64_t ticket);
  Status grant_waiters(std::size_t target);
  Status first_waiter(std::size_t target, std::size_t* waiter, std::uint64_t* request);
  Status hand_over(std::size_t target, std::size_t waiter, std::uint64_t request, bool* granted);
  Status guard(std::size_t target);
  Status unguard(std::size_t target);
  Status change_state(std::size_t target, std::uint64_t add, std::uint64_t* after);

  std::span<const ControlLink> links_;
  const ControlView& own_;
  const ControlLayout& layout_;
  std::size_t rank_;
};

}  // namespace hixl_rma

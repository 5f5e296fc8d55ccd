// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/deadline.h"
#include "base/patience.h"
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
///
/// NOTE [ranks that die here]
/// A rank may be killed between any two of these steps. What it held as a holder it keeps: what the
/// lock guards may be half done, and waiters are told of its loss. What it did inside the guard is
/// done to its end by whoever takes the guard over: the state carries a mark of the last grant, so
/// that one that was begun is told from one that was not, and a request word in which waiter and
/// granter decide by compare-and-swap. A waiter that died is passed over. One that is only stopped
/// inside the guard keeps those out who want to queue up, until they run out of time; who gives the
/// lock back or withdraws leaves it a word and goes on.
class WindowLock {
 public:
  WindowLock(std::span<const ControlLink> links, const ControlView& own,
             const ControlLayout& layout, int rank, Patience& patience)
      : links_(links),
        own_(own),
        layout_(layout),
        rank_(static_cast<std::size_t>(rank)),
        patience_(patience) {}

  /// How acquire waits: returns Ok when the predicate held, else why not.
  using Wait = std::function<Status(const std::function<bool()>& ready)>;

  /// Errors of the wait withdraw the request; a grant that came meanwhile counts unless the wait
  /// was interrupted.
  Status acquire(std::size_t target, bool exclusive, const Deadline& deadline, const Wait& wait);
  Status release(std::size_t target, bool exclusive);
  /// Does what ranks that died left undone in the queue. Whoever waits calls it when it learns of a
  /// death.
  Status recover(std::size_t target, const Deadline& deadline);
  /// Whether `rank` holds the target's lock in a way that keeps an exclusive (or shared) request
  /// out.
  Status holds(std::size_t target, std::size_t rank, bool exclusive, bool* held);

 private:
  Status try_now(std::size_t target, bool exclusive, bool* acquired);
  Status enqueue(std::size_t target, bool exclusive, const Deadline& deadline,
                 std::uint64_t* request);
  Status withdraw(std::size_t target, std::uint64_t request, bool* granted);
  Status serve(std::size_t target);
  Status enter(std::size_t target, const Deadline& deadline);
  Status leave(std::size_t target);
  // Inside the guard.
  Status grant_waiters(std::size_t target);
  Status first_waiter(std::size_t target, std::size_t* waiter, std::uint64_t* request);
  Status drop(std::size_t target, std::size_t waiter, bool* done);
  Status hand_over(std::size_t target, std::size_t waiter, std::uint64_t request, bool* granted);
  Status tell(std::size_t target, std::size_t waiter, std::uint64_t request);
  Status take_back(std::size_t target, std::size_t waiter, std::uint64_t request);
  Status repair(std::size_t target);
  Status change_state(std::size_t target, std::uint64_t add, std::uint64_t* after);

  std::span<const ControlLink> links_;
  const ControlView& own_;
  const ControlLayout& layout_;
  std::size_t rank_;
  Patience& patience_;
};

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
//
// Both ends of a notification: publishing at the origin, waiting at the target.
//
// NOTE [publication]
// The count of (origin, id) is taken and published under one mutex a target, after the payload: so
// records of one origin appear in the order of their counts, whatever threads publish, and nothing
// is overwritten by an older count. What is written, in this order: the bit of an id used for the
// first time, the record, the total. A reader that sees a total finds the records it stands for.
#include <algorithm>
#include <array>
#include <string>

#include "window/notify_watcher.h"
#include "window/window.h"

namespace hixl_rma {
namespace {

// One slot of a record, as words to store; the count comes last, with release order.
RecordWrite slot_write(std::uint64_t record, std::uint64_t count, std::uint64_t sum,
                       std::uint64_t salt) {
  return {
      record + (count % 2) * sizeof(RecordSlot), 3, {count, sum, record_check(count, sum, salt)}};
}

std::string describe(const NotificationSet& ids) {
  if (ids.size() == 1) return "notification " + std::to_string(ids.at(0));
  if (ids.list.empty()) {
    return "notifications " + std::to_string(ids.first) + " to " + std::to_string(ids.last - 1);
  }
  std::string text = "notifications";
  for (std::size_t i = 0; i < std::min<std::size_t>(ids.size(), 8); ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(ids.at(i));
  }
  return ids.size() > 8 ? text + ", ..." : text;
}

// A take of all could not keep its promise for an id that is there once and asked for twice.
bool names_one_twice(const NotificationSet& ids, std::size_t notifications) {
  if (ids.list.size() < 2) return false;
  std::vector<bool> named(notifications);
  for (const std::size_t id : ids.list) {
    if (named[id]) return true;
    named[id] = true;
  }
  return false;
}

// Spares a spinning waiter the search while nothing was published.
class Arrivals {
 public:
  Arrivals(const NotifyBoard& board, const NotifyWait& what)
      : board_(board), what_(what), known_(board.published(what.ids, what.source)) {}

  bool changed() {
    const std::uint64_t now = board_.published(what_.ids, what_.source);
    if (now == known_) return false;
    known_ = now;
    return true;
  }

 private:
  const NotifyBoard& board_;
  const NotifyWait& what_;
  std::uint64_t known_;
};

}  // namespace

Status Window::check_notify(int target, const NotifySpec& spec) {
  if (Status status = access(target); !status.ok()) return status;
  if (spec.id < options_.notifications) return {};
  return Status::error(StatusCode::kOutOfRange,
                       "notification " + std::to_string(spec.id) + " is not in 0 to " +
                           std::to_string(options_.notifications) + " exclusive");
}

Status Window::publish(int target, const NotifySpec& spec, const Deadline& deadline, Issue& issue) {
  const Link& to = link(target);
  const bool follows = spec.order == NotifyOrder::kAll && !to.behind.done();
  if (issue.behind || (follows && issue.own != nullptr)) {
    publish_behind(target, spec, issue);
    return {};
  }
  if (!to.ordered || follows) {
    // Data took another way than the record will: it has to be there first.
    if (Status status = flush_rank(target, FlushScope::kRemote, deadline); !status.ok()) {
      return status;
    }
  }
  return write_notification(target, spec);
}

Status Window::write_notification(int target, const NotifySpec& spec) {
  Link& to = link(target);
  const auto me = static_cast<std::size_t>(options_.rank);
  std::array<RecordWrite, 3> writes;
  std::size_t n = 0;
  std::lock_guard lock(to.publish_mutex);  // NOTE [publication]
  if (to.sent.empty()) to.sent.resize(options_.notifications);
  Link::Sent& sent = to.sent[spec.id];
  if (sent.count == 0) {
    const std::size_t first = spec.id / 64 * 64;
    std::uint64_t bits = std::uint64_t{1} << (spec.id % 64);
    for (std::size_t id = first; id < std::min(first + 64, options_.notifications); ++id) {
      if (to.sent[id].count != 0) bits |= std::uint64_t{1} << (id % 64);
    }
    writes[n++] = {layout_.touched(me) + spec.id / 64 * 8, 1, {bits}};
  }
  const Link::Sent next{sent.count + 1, sent.sum + spec.value};
  const std::uint64_t last_ids = to.last_ids << 16 | spec.id;
  writes[n++] = slot_write(layout_.record(me, spec.id), next.count, next.sum, to.salt);
  writes[n++] = slot_write(layout_.total(me), to.sent_total + 1, last_ids, to.salt);
  const ControlLink& control = control_links_[static_cast<std::size_t>(target)];
  const std::span<const RecordWrite> records(writes.data(), n);
  Status status = control.notify(records);
  if (!status.ok()) return post_error(target, status);
  sent = next;
  to.last_ids = last_ids;
  ++to.sent_total;
  to.notifies.count(0);
  return {};
}

Status Window::check_wait(const NotifyWait& what) const {
  if (Status status = usable(); !status.ok()) return status;
  const std::size_t n = what.ids.size();
  if (n == 0) return Status::error(StatusCode::kInvalidArgument, "no notification is named");
  const std::size_t highest =
      what.ids.list.empty() ? what.ids.last - 1 : *std::ranges::max_element(what.ids.list);
  if (highest >= options_.notifications) {
    return Status::error(StatusCode::kOutOfRange,
                         "notification " + std::to_string(highest) + " is not in 0 to " +
                             std::to_string(options_.notifications) + " exclusive");
  }
  if (names_one_twice(what.ids, options_.notifications)) {
    return Status::error(StatusCode::kInvalidArgument, "a notification is named twice");
  }
  if (what.count == 0) return Status::error(StatusCode::kInvalidArgument, "count must be >= 1");
  if (what.source != kAnySource && (what.source < 0 || what.source >= options_.size)) {
    return Status::error(StatusCode::kOutOfRange,
                         "source " + std::to_string(what.source) + " is not in 0 to " +
                             std::to_string(options_.size - 1) + " and not ANY_SOURCE");
  }
  return {};
}

Status Window::glance_notify(TakeMode mode, const NotifyWait& what, Taken* taken) {
  taken->clear();
  if (Status status = check_wait(what); !status.ok()) return status;
  Arrivals arrivals(*board_, what);
  if (take(mode, what, taken)) return {};
  const auto taken_now = [&] { return arrivals.changed() && take(mode, what, taken); };
  glance_for(options_.wait, taken_now);
  return {};
}

bool Window::take(TakeMode mode, const NotifyWait& what, Taken* taken) {
  switch (mode) {
    case TakeMode::kAny: {
      Notification one;
      if (!board_->take_any(what.ids, what.count, what.source, what.consume, &one)) return false;
      taken->any = one;
      return true;
    }
    case TakeMode::kSome:
      return board_->take_some(what.ids, what.count, what.source, what.consume, &taken->list);
    case TakeMode::kAll:
      break;
  }
  return board_->take_all(what.ids, what.count, what.source, what.consume, &taken->list);
}

bool Window::all_others_lost() const {
  return options_.size > 1 && lost_.size() + 1 >= static_cast<std::size_t>(options_.size);
}

// What has arrived was looked at before: now the loss of who could still send counts.
Status Window::lost_waiting(const NotifyWait& what) {
  refresh_lost();
  if (what.source != kAnySource) return first_lost(std::span(&what.source, 1));
  std::lock_guard lock(lost_mutex_);
  int rank = -1;
  if (lost_reported_ < lost_.size()) {
    rank = lost_[lost_reported_++];
  } else if (all_others_lost()) {
    rank = lost_.back();
  }
  if (rank < 0) return {};
  return loss_of(rank);
}

Status Window::notify_timeout(const NotifyWait& what, TakeMode mode) {
  std::string text = "timed out waiting for " +
                     std::string(mode == TakeMode::kAll ? "all of " : "") + describe(what.ids) +
                     " with count " + std::to_string(what.count) + " from " +
                     (what.source == kAnySource ? std::string("any source")
                                                : "rank " + std::to_string(what.source)) +
                     "; seen so far:";
  std::size_t told = 0;
  for (std::size_t i = 0; i < what.ids.size() && told < 16; ++i) {
    const std::size_t id = what.ids.at(i);
    for (int rank = 0; rank < options_.size && told < 16; ++rank) {
      if (what.source != kAnySource && rank != what.source) continue;
      const std::uint64_t pending = board_->pending(id, rank);
      if (pending == 0 && what.ids.size() > 1) continue;
      text += (told++ == 0 ? " " : ", ") + std::string("id ") + std::to_string(id) + " rank " +
              std::to_string(rank) + ": " + std::to_string(pending);
    }
  }
  if (told == 0) text += " nothing";
  return Status::error(StatusCode::kNotifyTimeout, std::move(text));
}

Status Window::test_notify(TakeMode mode, const NotifyWait& what, Taken* taken) {
  taken->clear();
  if (Status status = check_wait(what); !status.ok()) return status;
  engine_->progress();
  peers_->look();
  if (take(mode, what, taken)) return {};
  if (watching_.load(std::memory_order_acquire) == nullptr) return untaken(mode, what, taken);
  const Inside inside(*this);
  if (closing_.load()) return {};
  NotifyWatcher& watcher = *watching_.load(std::memory_order_acquire);
  watcher.drain();
  // What came between the look and the drain; behind it there may be more.
  Status status;
  if (take(mode, what, taken)) {
    watcher.tell();
  } else {
    status = untaken(mode, what, taken);
    if (!taken->empty() || unreported_loss()) watcher.tell();
  }
  return status;
}

// Nothing was there: a loss counts now. Who was lost may have notified between the two looks.
Status Window::untaken(TakeMode mode, const NotifyWait& what, Taken* taken) {
  if (!lost_matters(what) || take(mode, what, taken)) return {};
  return lost_waiting(what);
}

bool Window::unreported_loss() {
  std::lock_guard lock(lost_mutex_);
  return lost_reported_ < lost_.size();
}

Status Window::wait_notify(TakeMode mode, const NotifyWait& what, const Deadline& deadline,
                           Taken* taken) {
  if (Status status = check_wait(what); !status.ok()) return status;
  inside_.fetch_add(1);
  Status status;
  Arrivals arrivals(*board_, what);
  unsigned looks = 0;
  for (;;) {
    bool found = false;
    const WaitEnd end = wait_until(WaitKind::kNotification, what.source, deadline, [&] {
      // A count may be there before the rest of its record, so that a search finds nothing and its
      // count is known: hence a search now and then.
      if (arrivals.changed() || looks++ % kLooksPerClock == 0) found = take(mode, what, taken);
      return found || closing_.load(std::memory_order_relaxed) || lost_matters(what);
    });
    if (found) break;
    if (closing_.load()) {
      status = Status::error(StatusCode::kClosed, "the window was freed by another thread");
      break;
    }
    if (end == WaitEnd::kTimedOut) {
      status = notify_timeout(what, mode);
      break;
    }
    if (end == WaitEnd::kInterrupted) {
      status = waited(end);
      break;
    }
    status = lost_waiting(what);
    if (!status.ok()) break;
  }
  inside_.fetch_sub(1);
  return status;
}

// Cheap while nobody is lost: one load.
bool Window::lost_matters(const NotifyWait& what) {
  if (control_.header().lost_count.load(std::memory_order_relaxed) == 0) return false;
  refresh_lost();
  if (what.source != kAnySource) return link(what.source).lost.load(std::memory_order_relaxed);
  std::lock_guard lock(lost_mutex_);
  return lost_reported_ < lost_.size() || all_others_lost();
}

Result<std::uint64_t> Window::notify_count(std::size_t id, int source) {
  if (Status status = check_wait({{id, id + 1, {}}, 1, source, true}); !status.ok()) return status;
  return board_->pending(id, source);
}

Result<Notification> Window::reset_notify(std::size_t id) {
  if (Status status = check_wait({{id, id + 1, {}}, 1, kAnySource, true}); !status.ok()) {
    return status;
  }
  return board_->reset(id);
}

Result<int> Window::notify_fileno() {
  if (Status status = usable(); !status.ok()) return status;
  std::lock_guard lock(sync_mutex_);
  if (!watcher_) {
    auto watcher = NotifyWatcher::start(control_.header(), *board_, *peers_);
    if (!watcher.ok()) return watcher.status();
    watcher_ = watcher.take();
    watching_.store(watcher_.get(), std::memory_order_release);  // pairs with test_notify
  }
  return watcher_->fd();
}

}  // namespace hixl_rma

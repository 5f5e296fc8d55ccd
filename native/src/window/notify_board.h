// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "hixl_rma/status.h"
#include "window/control_layout.h"

namespace hixl_rma {

inline constexpr int kAnySource = -1;

/// What a wait reports.
struct Notification {
  std::size_t id = 0;
  int source = kAnySource;  ///< the rank when one origin supplied all of it
  std::uint64_t count = 0;
  std::uint64_t value = 0;
};

/// The ids a wait looks at: a range [first, last) or a list; each has its own memory of where the
/// last search ended, kept by the board.
struct NotificationSet {
  std::size_t first = 0;
  std::size_t last = 0;
  std::span<const std::size_t> list;  ///< used when not empty

  [[nodiscard]] std::size_t size() const { return list.empty() ? last - first : list.size(); }
  [[nodiscard]] std::size_t at(std::size_t i) const { return list.empty() ? first + i : list[i]; }
};

/// The target's side of notifications: reads the records that origins write into this rank's
/// control memory and keeps, privately, what was reported already.
/// Thread: every call takes the board's mutex, so consumption is atomic among threads.
///
/// Counts only grow. `seen` is what the records said when they were last read; `taken` is what was
/// consumed of it; the rest is pending. A wait on few ids reads their records; a wait on many reads
/// one total for each origin and then only the records that a changed total names.
class NotifyBoard {
 public:
  NotifyBoard(const ControlView& control, std::size_t ranks, std::uint64_t salt);
  NotifyBoard(const NotifyBoard&) = delete;
  NotifyBoard& operator=(const NotifyBoard&) = delete;
  ~NotifyBoard();

  /// One id of the set with at least `count` pending; fair among the ids. False when there is none.
  bool take_any(const NotificationSet& ids, std::uint64_t count, int source, bool consume,
                Notification* taken);
  /// Every id of the set with at least `count` pending. False when there is none.
  bool take_some(const NotificationSet& ids, std::uint64_t count, int source, bool consume,
                 std::vector<Notification>* taken);
  /// All ids of the set, each with at least `count`, or nothing.
  bool take_all(const NotificationSet& ids, std::uint64_t count, int source, bool consume,
                std::vector<Notification>* taken);
  /// Pending count of an id.
  std::uint64_t pending(std::size_t id, int source);
  /// Consumes everything pending on an id.
  Notification reset(std::size_t id);

  /// What was ever published to these ids, or a little more: changes when another search may find
  /// more than the last. Takes no lock and so costs a waiter who spins next to nothing.
  [[nodiscard]] std::uint64_t published(const NotificationSet& ids, int source) const;
  /// Notifications that ever arrived, by the totals: changes when there is something to look at.
  [[nodiscard]] std::uint64_t arrivals() const;

 private:
  struct Seen {
    std::uint64_t count;
    std::uint64_t sum;
    std::uint64_t taken;
    std::uint64_t reported;
  };
  /// The id that a search for any of a set found last.
  struct Cursor {
    std::size_t first;
    std::size_t last;
    std::size_t digest;  // of the list
    std::size_t served;
  };
  static constexpr std::size_t kNoId = ~std::size_t{0};

  [[nodiscard]] Seen& seen(std::size_t origin, std::size_t id) {
    return seen_[origin * control_.layout().ids() + id];
  }
  void collect(const NotificationSet& ids, int source);
  void collect_origin(std::size_t origin);
  void read(std::size_t origin, std::size_t id);
  void scan_touched(std::size_t origin);
  [[nodiscard]] std::uint64_t available(std::size_t id, int source);
  [[nodiscard]] std::size_t next_ready(std::size_t from, std::size_t to) const;
  bool search_range(std::size_t from, std::size_t to, std::uint64_t count, int source,
                    std::size_t* found);
  bool search(const NotificationSet& ids, std::uint64_t count, int source, std::size_t served,
              std::size_t* found);
  std::size_t& cursor(const NotificationSet& ids);
  Notification take(std::size_t id, std::uint64_t count, int source, bool consume);

  const ControlView& control_;
  std::size_t ranks_;
  std::uint64_t salt_;
  std::mutex mutex_;
  Seen* seen_ = nullptr;  // ranks x ids, pages come when first written
  std::size_t seen_bytes_ = 0;
  std::vector<std::uint64_t> seen_total_;   // by origin
  std::vector<std::uint64_t> pending_;      // by id, over all origins
  std::vector<std::uint64_t> ready_;        // bitmap of the ids with something pending
  std::vector<std::uint32_t> next_origin_;  // by id: where consumption goes on
  std::vector<Cursor> cursors_;
};

/// Reads a record that its writer may be changing: the newest whole slot above `known`.
/// Returns false and leaves the outputs when there is none.
bool read_record(const Record& record, std::uint64_t salt, std::uint64_t known,
                 std::uint64_t* count, std::uint64_t* sum);

}  // namespace hixl_rma

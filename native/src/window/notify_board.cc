// SPDX-License-Identifier: Apache-2.0
#include "window/notify_board.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

namespace hixl_rma {
namespace {

// Up to this many ids their records are read one by one; above it the totals say where to look.
constexpr std::size_t kFewIds = 2;
constexpr int kMaxLooks = 100;  // at a record that is written all the time
constexpr std::size_t kMaxCursors = 32;
constexpr std::uint64_t kIdsInTotal = 4;  // a total's sum packs the last four ids, 16 bits each

std::uint64_t newest_count(const Record& record) {
  return std::max(record.slots[0].count.load(std::memory_order_acquire),
                  record.slots[1].count.load(std::memory_order_acquire));
}

}  // namespace

bool read_record(const Record& record, std::uint64_t salt, std::uint64_t known,
                 std::uint64_t* count, std::uint64_t* sum) {
  for (int look = 0; look < kMaxLooks; ++look) {
    // acquire; pairs with the release store of the count: the payload is visible once it is seen
    const std::uint64_t even = record.slots[0].count.load(std::memory_order_acquire);
    const std::uint64_t odd = record.slots[1].count.load(std::memory_order_acquire);
    if (even <= known && odd <= known) return false;
    const std::size_t newer = odd > even ? 1 : 0;
    for (const std::size_t i : {newer, 1 - newer}) {
      const RecordSlot& slot = record.slots[i];
      const std::uint64_t slot_count = i == 0 ? even : odd;
      const std::uint64_t slot_sum = slot.sum.load(std::memory_order_relaxed);
      const std::uint64_t check = slot.check.load(std::memory_order_relaxed);
      if (slot_count > known && check == record_check(slot_count, slot_sum, salt)) {
        *count = slot_count;
        *sum = slot_sum;
        return true;
      }
    }
    // Both slots were written again meanwhile. What was published before this call is to be found,
    // so look once more; a writer that died inside a slot ends the looking.
  }
  return false;
}

NotifyBoard::NotifyBoard(const ControlView& control, std::size_t ranks, std::uint64_t salt)
    : control_(control),
      ranks_(ranks),
      salt_(salt),
      seen_bytes_(ranks * control.layout().ids() * sizeof(Seen)),
      seen_total_(ranks),
      pending_(control.layout().ids()),
      ready_(control.layout().touched_words()),
      next_origin_(control.layout().ids()) {
  if (seen_bytes_ == 0) return;
  void* pages = mmap(nullptr, seen_bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  seen_ = static_cast<Seen*>(pages);
}

NotifyBoard::~NotifyBoard() {
  if (seen_ != nullptr) munmap(seen_, seen_bytes_);
}

void NotifyBoard::read(std::size_t origin, std::size_t id) {
  Seen& record = seen(origin, id);
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  if (!read_record(control_.record(origin, id), salt_, record.count, &count, &sum)) return;
  pending_[id] += count - record.count;
  ready_[id / 64] |= std::uint64_t{1} << (id % 64);
  record.count = count;
  record.sum = sum;
}

void NotifyBoard::scan_touched(std::size_t origin) {
  for (std::size_t word = 0; word < control_.layout().touched_words(); ++word) {
    std::uint64_t bits = control_.touched(origin, word).load(std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      read(origin, word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
    }
  }
}

void NotifyBoard::collect_origin(std::size_t origin) {
  std::uint64_t total = 0;
  std::uint64_t last_ids = 0;
  std::uint64_t& known = seen_total_[origin];
  if (!read_record(control_.total(origin), salt_, known, &total, &last_ids)) return;
  const std::uint64_t fresh = total - known;
  known = total;
  if (fresh > kIdsInTotal) {
    scan_touched(origin);
    return;
  }
  for (std::uint64_t i = 0; i < fresh; ++i) {
    const auto id = static_cast<std::size_t>(last_ids >> (16 * i) & 0xffff);
    if (id < control_.layout().ids()) read(origin, id);
  }
}

void NotifyBoard::collect(const NotificationSet& ids, int source) {
  const std::size_t first = source == kAnySource ? 0 : static_cast<std::size_t>(source);
  const std::size_t last = source == kAnySource ? ranks_ : first + 1;
  for (std::size_t origin = first; origin < last; ++origin) {
    if (ids.size() > kFewIds) {
      collect_origin(origin);
      continue;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) read(origin, ids.at(i));
  }
}

std::uint64_t NotifyBoard::available(std::size_t id, int source) {
  if (source == kAnySource) return pending_[id];
  const Seen& record = seen(static_cast<std::size_t>(source), id);
  return record.count - record.taken;
}

// Consumes `count` in rank order beginning after the origin that was served last.
Notification NotifyBoard::take(std::size_t id, std::uint64_t count, int source, bool consume) {
  Notification result{id, kAnySource, count, 0};
  std::uint64_t left = count;
  std::size_t suppliers = 0;
  const std::size_t begin =
      source == kAnySource ? next_origin_[id] : static_cast<std::size_t>(source);
  const std::size_t origins = source == kAnySource ? ranks_ : 1;
  for (std::size_t i = 0; i < origins && left > 0; ++i) {
    const std::size_t origin = (begin + i) % ranks_;
    Seen& record = seen(origin, id);
    const std::uint64_t part = std::min(left, record.count - record.taken);
    if (part == 0) continue;
    left -= part;
    result.value += record.sum - record.reported;
    result.source = suppliers++ == 0 ? static_cast<int>(origin) : kAnySource;
    if (!consume) continue;
    record.taken += part;
    record.reported = record.sum;
    pending_[id] -= part;
    if (pending_[id] == 0) ready_[id / 64] &= ~(std::uint64_t{1} << (id % 64));
    next_origin_[id] = static_cast<std::uint32_t>((origin + 1) % ranks_);
  }
  return result;
}

std::size_t NotifyBoard::next_ready(std::size_t from, std::size_t to) const {
  while (from < to) {
    const std::uint64_t bits = ready_[from / 64] >> (from % 64);
    if (bits != 0) return std::min(to, from + static_cast<std::size_t>(std::countr_zero(bits)));
    from = (from / 64 + 1) * 64;
  }
  return to;
}

bool NotifyBoard::search_range(std::size_t from, std::size_t to, std::uint64_t count, int source,
                               std::size_t* found) {
  for (std::size_t id = next_ready(from, to); id < to; id = next_ready(id + 1, to)) {
    if (available(id, source) < count) continue;
    *found = id;
    return true;
  }
  return false;
}

// Each set of ids goes on where its own last search ended: a busy id starves no other of the set,
// whatever waits on other sets come between.
std::size_t& NotifyBoard::cursor(const NotificationSet& ids) {
  std::size_t digest = ids.list.size();
  for (const std::size_t id : ids.list) digest = digest * 1000003 + id;
  for (Cursor& known : cursors_) {
    if (known.first == ids.first && known.last == ids.last && known.digest == digest) {
      return known.served;
    }
  }
  // Few sets are in use at a time; one that is forgotten begins anew.
  if (cursors_.size() == kMaxCursors) cursors_.erase(cursors_.begin());
  cursors_.push_back({ids.first, ids.last, digest, kNoId});
  return cursors_.back().served;
}

bool NotifyBoard::search(const NotificationSet& ids, std::uint64_t count, int source,
                         std::size_t served, std::size_t* found) {
  if (ids.list.empty()) {
    const std::size_t begin = served == kNoId ? ids.first : served + 1;
    return search_range(begin, ids.last, count, source, found) ||
           search_range(ids.first, begin, count, source, found);
  }
  const std::size_t n = ids.list.size();
  const auto at = static_cast<std::size_t>(std::ranges::find(ids.list, served) - ids.list.begin());
  const std::size_t begin = at == n ? 0 : at + 1;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t id = ids.list[(begin + i) % n];
    if (available(id, source) < count) continue;
    *found = id;
    return true;
  }
  return false;
}

bool NotifyBoard::take_any(const NotificationSet& ids, std::uint64_t count, int source,
                           bool consume, Notification* taken) {
  std::lock_guard lock(mutex_);
  collect(ids, source);
  std::size_t nowhere = kNoId;
  std::size_t& served = ids.size() == 1 ? nowhere : cursor(ids);
  std::size_t id = 0;
  if (!search(ids, count, source, served, &id)) return false;
  *taken = take(id, count, source, consume);
  if (consume) served = id;
  return true;
}

bool NotifyBoard::take_some(const NotificationSet& ids, std::uint64_t count, int source,
                            bool consume, std::vector<Notification>* taken) {
  std::lock_guard lock(mutex_);
  collect(ids, source);
  taken->clear();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (available(ids.at(i), source) >= count) {
      taken->push_back(take(ids.at(i), count, source, consume));
    }
  }
  return !taken->empty();
}

bool NotifyBoard::take_all(const NotificationSet& ids, std::uint64_t count, int source,
                           bool consume, std::vector<Notification>* taken) {
  std::lock_guard lock(mutex_);
  collect(ids, source);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (available(ids.at(i), source) < count) return false;
  }
  taken->clear();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    taken->push_back(take(ids.at(i), count, source, consume));
  }
  return true;
}

std::uint64_t NotifyBoard::pending(std::size_t id, int source) {
  std::lock_guard lock(mutex_);
  collect({id, id + 1, {}}, source);
  return available(id, source);
}

Notification NotifyBoard::reset(std::size_t id) {
  std::lock_guard lock(mutex_);
  collect({id, id + 1, {}}, kAnySource);
  return take(id, pending_[id], kAnySource, true);
}

std::uint64_t NotifyBoard::published(const NotificationSet& ids, int source) const {
  const std::size_t first = source == kAnySource ? 0 : static_cast<std::size_t>(source);
  const std::size_t last = source == kAnySource ? ranks_ : first + 1;
  std::uint64_t sum = 0;
  for (std::size_t origin = first; origin < last; ++origin) {
    if (ids.size() > kFewIds) {
      sum += newest_count(control_.total(origin));
      continue;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      sum += newest_count(control_.record(origin, ids.at(i)));
    }
  }
  return sum;
}

std::uint64_t NotifyBoard::arrivals() const {
  std::uint64_t sum = 0;
  for (std::size_t origin = 0; origin < ranks_; ++origin) {
    sum += newest_count(control_.total(origin));
  }
  return sum;
}

}  // namespace hixl_rma

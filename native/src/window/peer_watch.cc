// SPDX-License-Identifier: Apache-2.0
#include "window/peer_watch.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/doorbell.h"

namespace hixl_rma {
namespace {

// A tenth of the exact clock's price; a tick or two of error does not matter here.
std::int64_t coarse_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void PeerWatch::add(int rank, std::shared_ptr<PeerProcess> process) {
  std::lock_guard lock(mutex_);
  if (process->descriptor() < 0) return;
  ranks_.push_back(rank);
  entries_.push_back({process->descriptor(), POLLIN, 0});
  processes_.push_back(std::move(process));
}

void PeerWatch::look() {
  const std::int64_t now = coarse_now();
  if (now < next_look_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // somebody looks already
  next_look_.store(now + kLookEvery.count(), std::memory_order_relaxed);
  if (poll(entries_.data(), entries_.size(), 0) <= 0) return;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].revents == 0) continue;
    entries_[i].fd = -1;  // poll passes it over from now on
    entries_[i].revents = 0;
    processes_[i].reset();
    ended(ranks_[i]);
  }
}

bool PeerWatch::look_at(int rank) {
  if (has_ended(rank)) return true;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(ranks_, rank);
    if (found == ranks_.end()) return false;
    PeerProcess* process = processes_[static_cast<std::size_t>(found - ranks_.begin())].get();
    if (process == nullptr || !process->gone()) return false;
  }
  ended(rank);
  return true;
}

void PeerWatch::ended(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  // It may have told so itself, and have died of what came after. That is news, too: from now on it
  // answers nothing that it was asked before.
  Word& lost = control_.peer(r).lost;
  End none = End::kNone;
  if (!known_[r].end.compare_exchange_strong(none, lost.load() != 0 ? End::kTold : End::kSilent)) {
    return;
  }
  lost.store(1);
  control_.header().lost_count.fetch_add(1);
  wake_all(control_.header().doorbell);
}

}  // namespace hixl_rma

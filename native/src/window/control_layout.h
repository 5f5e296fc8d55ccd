// SPDX-License-Identifier: Apache-2.0
//
// The control part of a window's segment: what ranks write into each other to synchronise. Every
// word has a stated writer; all are 8-byte aligned and start at zero.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/doorbell.h"
#include "base/stripe_lock.h"

namespace hixl_rma {

using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

inline constexpr std::size_t kBarrierRounds = 32;  // dissemination: 2^32 ranks

struct alignas(64) BarrierWord {
  Word epoch;  // written by the one rank that signals in this round
};

struct ControlHeader {
  Doorbell doorbell;  // rung by whoever changed a word here
  /// Ranks that were lost to this one: raised after the origin's `lost` word was set.
  alignas(64) Word lost_count;
  /// Generation of the data memory; changes when it is withdrawn. Written by the owner.
  Word generation;
  /// The window lock of this rank, see window_lock.h.
  alignas(64) Word lock_state;
  alignas(64) Word lock_guard;
  Word lock_ticket;
  std::array<BarrierWord, kBarrierRounds> barrier;
  std::array<StripeLock, kStripeCount> stripes;
};

/// What one peer has to do with this rank; one cache line for each.
struct alignas(64) PeerWords {
  Word posts;         // by the peer: exposure epochs it opened to this rank
  Word completes;     // by the peer: access epochs to this rank it completed
  Word in_flight;     // by the peer: generation it is copying under, 0 = not copying
  Word lock_request;  // by the peer and by who grants: its place in this rank's lock queue
  Word lock_grant;    // by who grants: ticket of this rank's request for the peer's lock
  Word lock_shared;   // by the peer or who grants to it: 1 while it holds this rank's lock shared
  Word lost;          // by the peer: 1 when it left without free
  Word verdict;       // by the peer: transports by which it reaches this rank, + 1
};
static_assert(sizeof(PeerWords) == 64);

/// One slot of a record: {count, sum, check}. `check` makes a torn read visible.
struct RecordSlot {
  Word count;
  Word sum;
  Word check;
  Word unused;
};

/// NOTE [a record is read untorn]
/// The writer of count k writes slot k mod 2, so slot (k - 1) mod 2 stays whole meanwhile. A reader
/// takes the slot with the higher count whose check fits. {count, sum} read one after the other
/// without the check were of two different notifications in 38 % of reads under load.
struct alignas(64) Record {
  std::array<RecordSlot, 2> slots;
};
static_assert(sizeof(Record) == 64);

constexpr std::uint64_t record_check(std::uint64_t count, std::uint64_t sum, std::uint64_t salt) {
  std::uint64_t x = count * 0x9e3779b97f4a7c15U ^ (sum + salt);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Byte offsets within the control part for a window of `ranks` ranks and `ids` notifications.
class ControlLayout {
 public:
  ControlLayout() = default;
  ControlLayout(std::size_t ranks, std::size_t ids)
      : ids_(ids),
        touched_words_((ids + 63) / 64),
        peers_(align(sizeof(ControlHeader))),
        totals_(peers_ + ranks * sizeof(PeerWords)),
        touched_(totals_ + ranks * sizeof(Record)),
        records_(align(touched_ + ranks * touched_words_ * 8)),
        nbytes_(records_ + ranks * ids * sizeof(Record)) {}

  [[nodiscard]] std::size_t peer(std::size_t rank) const {
    return peers_ + rank * sizeof(PeerWords);
  }
  /// How many notifications the origin sent in all; the sum packs the last four ids.
  [[nodiscard]] std::size_t total(std::size_t origin) const {
    return totals_ + origin * sizeof(Record);
  }
  /// Bitmap of the ids the origin ever used.
  [[nodiscard]] std::size_t touched(std::size_t origin) const {
    return touched_ + origin * touched_words_ * 8;
  }
  [[nodiscard]] std::size_t record(std::size_t origin, std::size_t id) const {
    return records_ + (origin * ids_ + id) * sizeof(Record);
  }
  [[nodiscard]] std::size_t ids() const { return ids_; }
  [[nodiscard]] std::size_t touched_words() const { return touched_words_; }
  /// Everything before is reserved at creation; record pages come when they are first used.
  [[nodiscard]] std::size_t records() const { return records_; }
  [[nodiscard]] std::size_t nbytes() const { return nbytes_; }

 private:
  static constexpr std::size_t align(std::size_t n) { return (n + 63) / 64 * 64; }

  std::size_t ids_ = 0;
  std::size_t touched_words_ = 0;
  std::size_t peers_ = 0;
  std::size_t totals_ = 0;
  std::size_t touched_ = 0;
  std::size_t records_ = 0;
  std::size_t nbytes_ = 0;
};

/// This rank's own control part, by pointer.
class ControlView {
 public:
  ControlView() = default;
  ControlView(std::byte* base, const ControlLayout& layout) : base_(base), layout_(layout) {}

  [[nodiscard]] ControlHeader& header() const { return *reinterpret_cast<ControlHeader*>(base_); }
  [[nodiscard]] PeerWords& peer(std::size_t rank) const {
    return *reinterpret_cast<PeerWords*>(base_ + layout_.peer(rank));
  }
  [[nodiscard]] const Record& total(std::size_t origin) const {
    return *reinterpret_cast<const Record*>(base_ + layout_.total(origin));
  }
  [[nodiscard]] const Word& touched(std::size_t origin, std::size_t word) const {
    return reinterpret_cast<const Word*>(base_ + layout_.touched(origin))[word];
  }
  [[nodiscard]] const Record& record(std::size_t origin, std::size_t id) const {
    return *reinterpret_cast<const Record*>(base_ + layout_.record(origin, id));
  }
  [[nodiscard]] const ControlLayout& layout() const { return layout_; }

 private:
  std::byte* base_ = nullptr;
  ControlLayout layout_;
};

}  // namespace hixl_rma

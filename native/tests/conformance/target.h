// SPDX-License-Identifier: Apache-2.0
//
// The far side of a conformance test: a thread or a forked process with memory of its own that does
// what it is told over a socket, so that every claim is written once for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "conformance/side.h"
#include "hixl_rma/memory.h"
#include "hixl_rma/status.h"
#include "support/channel.h"

namespace hixl_rma::testing {

/// A test's region, by offset: words the two sides count and signal in, then the payload.
inline constexpr std::uint64_t kCounterWord = 0;
inline constexpr std::uint64_t kAckWord = 64;
inline constexpr std::uint64_t kRecordWord = 128;  // two words
inline constexpr std::uint64_t kPayload = 4096;
inline constexpr std::size_t kRegionBytes = std::size_t{3} << 20;

/// How many payloads of put-then-notify are under way before the origin waits.
inline constexpr std::uint64_t kSlots = 4;
inline constexpr std::size_t kSlotBytes = 65536;
/// Bytes of the payload of a round: small, unaligned and long ones in turn.
constexpr std::size_t slot_length(std::uint64_t round) {
  constexpr std::array<std::size_t, 5> kLengths = {8, 1000, 65536, 63, 4097};
  return kLengths[round % kLengths.size()];
}

/// What the watcher of put-then-notify saw.
struct Watched {
  std::uint64_t early = 0;  ///< records that were visible before their payload
  std::uint64_t lost = 0;   ///< wake-ups that did not come
  std::uint64_t rounds = 0;
};

/// The near side's handle. Every call but start_* waits for the answer.
class Target {
 public:
  explicit Target(const Trial& trial);
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target();

  /// Connects the near side to this one.
  Status meet(Side& near);
  /// What the far side said of itself: engine address and keys, see Side::introduction().
  [[nodiscard]] const Bytes& introduction() const { return introduction_; }

  Bytes read(std::uint64_t offset, std::size_t nbytes);
  void fill(std::uint64_t offset, std::size_t nbytes, std::uint64_t seed);

  /// The target works on the counter word of its own region, through the transport, until told().
  void start_adding(std::uint64_t times);
  void start_swapping(std::uint64_t times);
  /// Adds 1.0 to `count` doubles of the payload, `times` times.
  void start_accumulating(std::uint64_t times, std::uint64_t count);
  /// Sleeps on its doorbell until record 1 to `rounds` came, and checks each payload at once.
  void start_watching(std::uint64_t rounds);
  /// Polls the record's two words until the first is `last`; false from told() when the second was
  /// ever behind it.
  void start_polling(std::uint64_t last);
  /// Waits for the end of what was started.
  bool told();
  Watched watched();

 private:
  void ask(std::uint8_t command, std::uint64_t a, std::uint64_t b, std::uint64_t c);

  Place place_;
  Channel channel_;
  Bytes introduction_;
  std::thread thread_;
  std::unique_ptr<Child> child_;
};

}  // namespace hixl_rma::testing

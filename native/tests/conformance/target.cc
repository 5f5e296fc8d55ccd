// SPDX-License-Identifier: Apache-2.0
#include "conformance/target.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/wire.h"
#include "support/patience.h"
#include "support/pattern.h"
#include "support/status_assert.h"

namespace hixl_rma::testing {
namespace {

constexpr std::uint32_t kFarHolder = 2;

enum Command : std::uint8_t {
  kQuit,
  kRead,
  kFill,
  kAdd,
  kSwap,
  kAccumulateOnes,
  kWatch,
  kPoll,
};

/// The far side's end of the conversation.
class Server {
 public:
  Server(const Trial& trial, Channel& channel) : trial_(trial), channel_(channel) {}

  void serve() {
    if (!introduce()) return;
    Bytes message;
    while (channel_.receive(&message)) {
      WireReader reader(message);
      const auto command = reader.number<std::uint8_t>();
      const auto a = reader.number<std::uint64_t>();
      const auto b = reader.number<std::uint64_t>();
      const auto c = reader.number<std::uint64_t>();
      if (command == kQuit || !answer(command, a, b, c)) return;
    }
  }

 private:
  // The far side connects to itself: as an origin it goes through the transport, too.
  bool introduce() {
    auto side = Side::create(trial_, kRegionBytes, kFarHolder);
    Status status = side.status();
    if (status.ok()) {
      side_ = side.take();
      status = side_->connect(side_->introduction());
    }
    WireWriter writer;
    writer.number(static_cast<std::uint8_t>(status.code())).text(status.text());
    writer.bytes(status.ok() ? side_->introduction() : Bytes());
    return channel_.send(writer.take()) && status.ok();
  }

  bool answer(std::uint8_t command, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    switch (command) {
      case kRead:
        return channel_.send(copy_of(a, b));
      case kFill:
        meet_transport();
        fill_pattern(side_->data() + a, b, c);
        meet_transport();
        return channel_.send_number(1);
      case kAdd:
        return channel_.send_number(add(a) ? 1 : 0);
      case kSwap:
        return channel_.send_number(swap(a) ? 1 : 0);
      case kAccumulateOnes:
        return channel_.send_number(accumulate(a, b) ? 1 : 0);
      case kWatch:
        return channel_.send(watch(a));
      case kPoll:
        return channel_.send_number(poll(a) ? 1 : 2);
      default:
        return false;
    }
  }

  // A thread of the transport may have worked on our memory for an origin in another process. TSan
  // knows of no order between its work and ours but by an operation that both take part in.
  void meet_transport() {
    std::byte byte{};
    EXPECT_OK(side_->get(&byte, 0, 1));
  }

  Bytes copy_of(std::uint64_t offset, std::uint64_t nbytes) {
    meet_transport();
    const std::byte* begin = side_->data() + offset;
    Bytes copy(begin, begin + nbytes);
    meet_transport();
    return copy;
  }

  bool add(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
      if (!side_->fetch_add(kCounterWord, 1).ok()) return false;
    }
    return true;
  }

  bool swap(std::uint64_t times) {
    std::uint64_t seen = 0;
    for (std::uint64_t i = 0; i < times;) {
      auto previous = side_->compare_swap(kCounterWord, seen, seen + 1);
      if (!previous.ok()) return false;
      if (previous.value() == seen) ++i;
      seen = previous.value() == seen ? seen + 1 : previous.value();
    }
    return true;
  }

  bool accumulate(std::uint64_t times, std::uint64_t count) {
    const std::vector<double> ones(count, 1.0);
    Accumulate operation{DataType::kFloat64, ReduceOp::kSum};
    operation.operand = reinterpret_cast<const std::byte*>(ones.data());
    operation.offset = kPayload;
    operation.count = count;
    for (std::uint64_t i = 0; i < times; ++i) {
      if (!side_->accumulate(operation).ok()) return false;
    }
    return true;
  }

  [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint64_t offset) const {
    return std::atomic_ref<std::uint64_t>(
        *reinterpret_cast<std::uint64_t*>(side_->data() + offset));
  }

  // No spinning: every round that is not there yet is slept for.
  bool await_record(std::uint64_t round, Watched& seen) {
    while (word(kRecordWord).load(std::memory_order_acquire) < round) {
      Sleeper sleeper(side_->sync_area().doorbell);
      if (word(kRecordWord).load(std::memory_order_acquire) >= round) return true;
      const SleepEnd end = sleeper.sleep(kPatience / 4);
      if (end != SleepEnd::kTimedOut) continue;
      if (word(kRecordWord).load(std::memory_order_acquire) < round) return false;
      ++seen.lost;
    }
    return true;
  }

  Bytes watch(std::uint64_t rounds) {
    Watched seen;
    for (std::uint64_t round = 1; round <= rounds && await_record(round, seen); ++round) {
      const std::byte* payload = side_->data() + kPayload + round % kSlots * kSlotBytes;
      const std::size_t length = slot_length(round);
      if (first_mismatch(payload, length, round) != length) ++seen.early;
      ++seen.rounds;
      word(kAckWord).store(round, std::memory_order_release);
    }
    return WireWriter().number(seen.early).number(seen.lost).number(seen.rounds).take();
  }

  [[nodiscard]] bool poll(std::uint64_t last) const {
    const Deadline deadline = soon();
    std::uint64_t behind = 0;
    for (std::uint64_t first = 0; first < last && !deadline.expired();) {
      first = word(kRecordWord).load(std::memory_order_acquire);
      const std::uint64_t second = word(kRecordWord + 8).load(std::memory_order_relaxed);
      behind += second < first ? 1 : 0;  // it may be of a later round
    }
    return behind == 0 && !deadline.expired();
  }

  const Trial& trial_;
  Channel& channel_;
  std::unique_ptr<Side> side_;
};

}  // namespace

Target::Target(const Trial& trial) : place_(trial.place) {
  if (place_ == Place::kProcess) {
    child_ = std::make_unique<Child>([&](Channel& channel) { Server(trial, channel).serve(); });
    channel_ = std::move(child_->channel());
    return;
  }
  auto [near, far] = Channel::pair();
  channel_ = std::move(near);
  thread_ =
      std::thread([trial, channel = std::move(far)]() mutable { Server(trial, channel).serve(); });
}

Target::~Target() {
  ask(kQuit, 0, 0, 0);
  if (thread_.joinable()) thread_.join();
  if (!child_) return;
  EXPECT_EQ(child_->wait(), 0);
}

Status Target::meet(Side& near) {
  Bytes message;
  if (!channel_.receive(&message)) {
    return Status::error(StatusCode::kInternal, "the far side said nothing");
  }
  WireReader reader(message);
  const auto code = static_cast<StatusCode>(reader.number<std::uint8_t>());
  const std::string text = reader.text();
  if (code != StatusCode::kOk) return Status::error(code, text);
  const ByteSpan introduction = reader.bytes();
  introduction_.assign(introduction.begin(), introduction.end());
  return near.connect(introduction_);
}

void Target::ask(std::uint8_t command, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  (void)channel_.send(WireWriter().number(command).number(a).number(b).number(c).take());
}

Bytes Target::read(std::uint64_t offset, std::size_t nbytes) {
  ask(kRead, offset, nbytes, 0);
  Bytes bytes;
  EXPECT_TRUE(channel_.receive(&bytes));
  return bytes;
}

void Target::fill(std::uint64_t offset, std::size_t nbytes, std::uint64_t seed) {
  ask(kFill, offset, nbytes, seed);
  EXPECT_TRUE(told());
}

void Target::start_adding(std::uint64_t times) { ask(kAdd, times, 0, 0); }
void Target::start_swapping(std::uint64_t times) { ask(kSwap, times, 0, 0); }
void Target::start_accumulating(std::uint64_t times, std::uint64_t count) {
  ask(kAccumulateOnes, times, count, 0);
}
void Target::start_watching(std::uint64_t rounds) { ask(kWatch, rounds, 0, 0); }
void Target::start_polling(std::uint64_t last) { ask(kPoll, last, 0, 0); }
bool Target::told() { return channel_.receive_number() == 1; }

Watched Target::watched() {
  Bytes message;
  EXPECT_TRUE(channel_.receive(&message));
  WireReader reader(message);
  Watched seen;
  seen.early = reader.number<std::uint64_t>();
  seen.lost = reader.number<std::uint64_t>();
  seen.rounds = reader.number<std::uint64_t>();
  return seen;
}

}  // namespace hixl_rma::testing

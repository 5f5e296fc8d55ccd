// SPDX-License-Identifier: Apache-2.0
//
// NOTE [never block for long]
// One thread serves all origins of a region, so it waits for none of them. A stripe lock that is
// taken is tried for a moment; then the request is put aside, the other lanes have their turn, and
// it is tried again. Its lane waits meanwhile: operations of one origin keep their order.
#include "transport/staged/lane_service.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/cpu.h"
#include "transport/common/stripes.h"

namespace hixl_rma {
namespace {

/// How long the thread looks for more before it sleeps: origins that wait for an answer post again
/// at once, and a wake-up costs more than this is worth.
constexpr Nanoseconds kLinger = std::chrono::microseconds(20);
constexpr Nanoseconds kRest = std::chrono::seconds(1);
constexpr Nanoseconds kStalledRest = std::chrono::microseconds(50);

SlotRequest read_request(const SlotHeader& header) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  SlotRequest request;
  request.verb = static_cast<SlotVerb>(header.verb.load(kRelaxed));
  request.type = static_cast<DataType>(std::min(header.type.load(kRelaxed), std::uint32_t{255}));
  request.op = static_cast<ReduceOp>(std::min(header.op.load(kRelaxed), std::uint32_t{255}));
  const std::uint32_t flags = header.flags.load(kRelaxed);
  request.has_operand = (flags & 1) != 0;
  request.wants_result = (flags & 2) != 0;
  request.runs = header.runs.load(kRelaxed);
  request.offset = header.offset.load(kRelaxed);
  request.length = header.length.load(kRelaxed);
  return request;
}

}  // namespace

Result<std::shared_ptr<LaneService>> LaneService::create(const MemoryView& view, Access access) {
  const std::array<SharedSegment::Range, 1> reserved = {
      SharedSegment::Range{0, sizeof(StagingHeader)}};
  auto segment = SharedSegment::create(kStagingBytes, reserved);
  if (!segment.ok()) return segment.status();
  return std::shared_ptr<LaneService>(new LaneService(view, access, segment.take()));
}

Status LaneService::start() {
  std::lock_guard lock(mutex_);
  if (stopping_.load(std::memory_order_relaxed)) {
    return Status::error(StatusCode::kClosed, "the memory was withdrawn");
  }
  if (thread_.started()) return {};
  cursors_.resize(kLanes);
  return thread_.start("hixl-staging", [this] { serve(); });
}

bool LaneService::started() const {
  std::lock_guard lock(mutex_);
  return thread_.started();
}

void LaneService::stop() {
  if (thread_.is_parents()) return;  // and so is the staging buffer
  std::lock_guard lock(mutex_);
  stopping_.store(true, std::memory_order_release);  // pairs with the loads in serve() and rest()
  if (!thread_.started()) return;
  wake_all(header().doorbell);
  thread_.join();
  // Only now: what was answered was answered before, and what was not never will be.
  header().closed.store(1, std::memory_order_release);  // pairs with the load in Lane
}

void LaneService::serve() {
  Bits pending{};
  auto linger_until = Clock::now();
  bool worked = false;
  while (!stopping_.load(std::memory_order_acquire)) {
    collect(pending);
    if (serve_round(pending) != 0) {
      worked = true;
      continue;
    }
    const auto now = Clock::now();
    if (worked) linger_until = now + kLinger;
    worked = false;
    if (now >= linger_until) {
      rest(!stalled_.empty());
      continue;
    }
    for (int look = 0; look < 32 && !anything_ready(); ++look) cpu_relax();
    sched_yield();
  }
}

void LaneService::rest(bool stalled) {
  Sleeper sleeper(header().doorbell);
  if (anything_ready() || stopping_.load(std::memory_order_acquire)) return;
  sleeper.sleep(stalled ? kStalledRest : kRest);
}

bool LaneService::anything_ready() const {
  return std::ranges::any_of(
      header().ready, [](const auto& word) { return word.load(std::memory_order_relaxed) != 0; });
}

bool LaneService::collect(Bits& pending) {
  bool any = false;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    auto& word = header().ready[i];
    // acquire; pairs with the release of the origin's fetch_or: the slot it posted is found
    if (word.load(std::memory_order_relaxed) != 0) {
      pending[i] |= word.exchange(0, std::memory_order_acquire);
    }
    any = any || pending[i] != 0;
  }
  return any;
}

// One slot of each lane that has something. Returns how many were served.
std::size_t LaneService::serve_round(Bits& pending) {
  std::size_t served = 0;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    for (std::uint64_t left = pending[i]; left != 0; left &= left - 1) {
      if (stopping_.load(std::memory_order_relaxed)) return served;
      const auto lane = static_cast<std::size_t>(std::countr_zero(left));
      const Turn turn = serve_lane(64 * i + lane);
      if (turn == Turn::kServed) ++served;
      if (turn == Turn::kNothing) pending[i] &= ~(std::uint64_t{1} << lane);
    }
  }
  return served;
}

LaneService::Turn LaneService::serve_lane(std::size_t lane) {
  const LaneView view(segment_->data() + lane_offset(lane));
  const std::size_t slot = cursors_[lane];
  SlotHeader& shared = view.control().slots[slot];
  auto stalled = stalled_.find(lane);
  Stalled work;
  if (stalled != stalled_.end()) {
    work = stalled->second;
  } else {
    SlotState expected = SlotState::kPosted;
    // acquire; pairs with the release of the post: request and payload are there
    if (!shared.state.compare_exchange_strong(
            expected, SlotState::kServing, std::memory_order_acquire, std::memory_order_relaxed)) {
      return Turn::kNothing;
    }
    work.request = read_request(shared);
  }
  SlotAnswer answer = SlotAnswer::kDone;
  if (!execute(work.request, view.payload(slot), &work.done, &answer)) {
    stalled_[lane] = work;
    return Turn::kStalled;
  }
  if (stalled != stalled_.end()) stalled_.erase(stalled);
  const std::size_t next = (slot + 1) % kSlots;
  cursors_[lane] = static_cast<std::uint8_t>(next);
  view.control().served.store(static_cast<std::uint32_t>(next), std::memory_order_relaxed);
  shared.answer.store(answer, std::memory_order_relaxed);
  // release; pairs with the acquire of the origin: the bytes are placed, the answer is there
  shared.state.store(SlotState::kAnswered, std::memory_order_release);
  return Turn::kServed;
}

bool LaneService::execute(const SlotRequest& request, std::byte* payload, std::size_t* done,
                          SlotAnswer* answer) {
  const bool writes = request.verb != SlotVerb::kGet &&
                      !(request.verb == SlotVerb::kAccumulate && request.op == ReduceOp::kNoOp);
  if (writes && access_ == Access::kReadOnly) {
    *answer = SlotAnswer::kReadOnly;
    return true;
  }
  switch (request.verb) {
    case SlotVerb::kPut:
    case SlotVerb::kGet:
      *answer = move(request, payload);
      return true;
    case SlotVerb::kAccumulate:
      return accumulate(request, payload, done, answer);
    case SlotVerb::kSwap:
      return swap(request, payload, answer);
  }
  *answer = SlotAnswer::kMalformed;
  return true;
}

SlotAnswer LaneService::move_run(SlotVerb verb, std::byte* bytes, std::uint64_t offset,
                                 std::uint64_t nbytes) {
  if (!in_range(offset, nbytes, region_.nbytes())) return SlotAnswer::kOutOfRange;
  const Piece piece{bytes, offset, static_cast<std::size_t>(nbytes)};
  const PostResult moved = verb == SlotVerb::kPut ? verbs_.put(region_, piece, nullptr)
                                                  : verbs_.get(region_, piece, nullptr);
  return moved.state == Post::kDone ? SlotAnswer::kDone : SlotAnswer::kMalformed;
}

SlotAnswer LaneService::move(const SlotRequest& request, std::byte* payload) {
  if (request.runs == 0) {
    if (request.length > kSlotBytes) return SlotAnswer::kMalformed;
    return move_run(request.verb, payload, request.offset, request.length);
  }
  if (request.runs > kSlotBytes / kRunBytes) return SlotAnswer::kMalformed;
  std::size_t at = request.runs * kRunBytes;
  for (std::size_t i = 0; i < request.runs; ++i) {
    const std::uint64_t offset = payload_word(payload, 2 * i).load(std::memory_order_relaxed);
    const std::uint64_t nbytes = payload_word(payload, 2 * i + 1).load(std::memory_order_relaxed);
    if (!in_range(at, nbytes, kSlotBytes)) return SlotAnswer::kMalformed;
    const SlotAnswer moved = move_run(request.verb, payload + at, offset, nbytes);
    if (moved != SlotAnswer::kDone) return moved;
    at += align_run(static_cast<std::size_t>(nbytes));
  }
  return SlotAnswer::kDone;
}

bool LaneService::accumulate(const SlotRequest& request, std::byte* payload, std::size_t* done,
                             SlotAnswer* answer) {
  *answer = SlotAnswer::kMalformed;
  const std::size_t element = size_of(request.type);
  const ReduceFunction apply = reduce_function(request.type, request.op, kSlotBytes);
  if (apply == nullptr || element == 0 || request.length > kSlotBytes / element ||
      (!request.has_operand && request.op != ReduceOp::kNoOp)) {
    return true;
  }
  *answer = SlotAnswer::kOutOfRange;
  if (!in_range(request.offset, request.length * element, region_.nbytes())) return true;
  alignas(64) std::array<std::byte, kStripeBytes> operand;
  while (*done < request.length) {
    const std::uint64_t offset = request.offset + *done * element;
    const std::size_t n = elements_in_stripe(offset, element, request.length - *done);
    const std::size_t nbytes = n * element;
    std::byte* shared = payload + *done * element;
    // Aside: the old values take the operand's place.
    if (request.has_operand) std::memcpy(operand.data(), shared, nbytes);
    const RegionSync& sync = region_.sync();
    const StripeGuard guard(stripe_user(sync), offset, nbytes, std::try_to_lock);
    if (!guard.locked()) return false;  // NOTE [never block for long]
    std::byte* target = region_.mapped() + offset;
    if (request.wants_result) {
      (void)verbs_.get(region_, Piece{shared, offset, nbytes}, nullptr);
    }
    if (request.op != ReduceOp::kNoOp) apply(target, operand.data(), n);
    *done += n;
  }
  *answer = SlotAnswer::kDone;
  return true;
}

bool LaneService::swap(const SlotRequest& request, std::byte* payload, SlotAnswer* answer) {
  const std::size_t element = size_of(request.type);
  *answer = SlotAnswer::kMalformed;
  if (!is_swappable(request.type) || element == 0 || element > kSwapDesired) return true;
  *answer = SlotAnswer::kOutOfRange;
  if (!in_range(request.offset, element, region_.nbytes())) return true;
  std::array<std::byte, kSwapResult> operands;
  std::memcpy(operands.data(), payload, operands.size());
  const RegionSync& sync = region_.sync();
  const StripeGuard guard(stripe_user(sync), request.offset, element, std::try_to_lock);
  if (!guard.locked()) return false;  // NOTE [never block for long]
  compare_and_swap(request.type, region_.mapped() + request.offset, operands.data() + kSwapCompare,
                   operands.data() + kSwapDesired, payload + kSwapResult);
  *answer = SlotAnswer::kDone;
  return true;
}

// ---------------------------------------------------------------------------------------------
// services of this process

namespace {

struct Services {
  std::mutex mutex;
  std::map<Token, std::weak_ptr<LaneService>> by_token;
  int forks = fork_generation();
};

Services& services() {
  static auto* instance = new Services;  // NOLINT(cppcoreguidelines-owning-memory): outlives exit
  return *instance;
}

/// Calls with the table of this process, locked. After a fork what is in it is the parent's.
template <class Use>
auto with_services(Use&& use) {
  Services& all = services();
  std::lock_guard lock(all.mutex);
  if (all.forks != fork_generation()) all.by_token.clear();
  all.forks = fork_generation();
  return use(all.by_token);
}

}  // namespace

void publish_service(const Token& token, const std::shared_ptr<LaneService>& service) {
  with_services([&](auto& known) { known.emplace(token, service); });
}

void forget_service(const Token& token) {
  with_services([&](auto& known) { known.erase(token); });
}

std::shared_ptr<LaneService> find_service(const Token& token) {
  return with_services([&](auto& known) {
    const auto found = known.find(token);
    return found == known.end() ? nullptr : found->second.lock();
  });
}

}  // namespace hixl_rma

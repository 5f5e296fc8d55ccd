// SPDX-License-Identifier: Apache-2.0
//
// Life of an operation: post() puts it into the queue; execute_one(), on the target's thread or in
// the origin's progress(), takes one, works on the target's memory and keeps the outcome; fire(),
// from the origin's progress() alone, gives the outcome to the completion. close() fires what is
// left, after waiting for the one operation that may be executed just then.
//
// Order: a notify and a flush are barriers in the queue. Between two barriers puts and gets go in
// any order when the session asks for it, and the accumulate family keeps its own.
#include "fakes/fake_queue.h"

#include <utility>

namespace hixl_rma::fakes {
namespace {

bool is_barrier(FakeVerb verb) { return verb == FakeVerb::kNotify || verb == FakeVerb::kFlush; }

bool keeps_order(FakeVerb verb) { return verb != FakeVerb::kPut && verb != FakeVerb::kGet; }

Status canceled() { return Status::error(StatusCode::kCanceled, "the endpoint was closed"); }

}  // namespace

// ------------------------------------------------------------------------------------------
// network

void FakeNetwork::set_held(bool held) {
  held_.store(held, std::memory_order_release);
  std::vector<std::shared_ptr<FakePort>> ports;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, port] : ports_) {
      if (auto live = port.lock()) ports.push_back(std::move(live));
    }
  }
  for (const auto& port : ports) port->wake();
}

void FakeNetwork::add_fault(FakeVerb verb, std::uint64_t nth, FakeFault fault) {
  std::lock_guard lock(mutex_);
  faults_[{verb, posts_.at(static_cast<std::size_t>(verb)) + nth}] = fault;
}

FakeFault FakeNetwork::take_fault(FakeVerb verb) {
  std::lock_guard lock(mutex_);
  const auto found = faults_.find({verb, ++posts_.at(static_cast<std::size_t>(verb))});
  return found == faults_.end() ? FakeFault::kNone : found->second;
}

void FakeNetwork::log(const FakeExecution& execution) {
  std::lock_guard lock(mutex_);
  executed_.push_back(execution);
}

std::vector<FakeExecution> FakeNetwork::executed() const {
  std::lock_guard lock(mutex_);
  return executed_;
}

std::size_t FakeNetwork::executed_count() const {
  std::lock_guard lock(mutex_);
  return executed_.size();
}

std::uint64_t FakeNetwork::add_port(const std::shared_ptr<FakePort>& port) {
  std::lock_guard lock(mutex_);
  ports_.emplace(next_port_, port);
  return next_port_++;
}

std::shared_ptr<FakePort> FakeNetwork::find_port(std::uint64_t id) const {
  std::lock_guard lock(mutex_);
  const auto found = ports_.find(id);
  return found == ports_.end() ? nullptr : found->second.lock();
}

// --------------------------------------------------------------------------------------------
// queue

FakeQueue::FakeQueue(std::shared_ptr<FakeNetwork> network, std::shared_ptr<FakePort> target)
    : network_(std::move(network)),
      target_(std::move(target)),
      random_(static_cast<std::minstd_rand::result_type>(network_->options().reorder_seed)) {}

// Called with the mutex held.
PostResult FakeQueue::admit(FakeOperation& operation) {
  if (closed_) return Status::error(StatusCode::kClosed, "the endpoint was closed");
  if (target_->stopped()) return Status::error(StatusCode::kPeerLost, "the peer is gone");
  const std::size_t capacity = network_->options().queue_capacity;
  const std::size_t used = queue_.size() + done_.size() + (executing_ ? 1 : 0);
  if (capacity != 0 && used >= capacity) return Post::kAgain;
  const FakeFault fault = network_->take_fault(operation.verb);
  if (fault == FakeFault::kPost) {
    return Status::error(StatusCode::kTransferFailed, "this post was told to fail");
  }
  operation.fails = fault == FakeFault::kCompletion;
  operation.serial = next_serial_++;
  if (operation.borrows) ++borrowing_;
  queue_.push_back(std::move(operation));
  return Post::kPending;
}

PostResult FakeQueue::post(FakeOperation operation) {
  PostResult answer = Post::kAgain;
  {
    std::lock_guard lock(mutex_);
    answer = admit(operation);
  }
  if (answer.state == Post::kPending) target_->wake();
  return answer;
}

PostResult FakeQueue::flush(FlushScope scope, Completion* completion) {
  {
    std::lock_guard lock(mutex_);
    const bool nothing = queue_.empty() && done_.empty() && !executing_;
    if (nothing) failed_ = false;
    if (!closed_ && (nothing || (scope == FlushScope::kLocal && borrowing_ == 0))) {
      return Post::kDone;
    }
  }
  FakeOperation operation;
  operation.verb = FakeVerb::kFlush;
  operation.completion = completion;
  return post(std::move(operation));
}

// Called with the mutex held and a queue that is not empty.
std::size_t FakeQueue::next_index() {
  if (network_->options().reorder_seed == 0) return 0;
  std::vector<std::size_t> eligible;
  bool ordered_seen = false;
  for (std::size_t i = 0; i < queue_.size() && !is_barrier(queue_[i].verb); ++i) {
    const bool ordered = keeps_order(queue_[i].verb);
    if (!ordered || !ordered_seen) eligible.push_back(i);
    ordered_seen = ordered_seen || ordered;
  }
  return eligible.empty() ? 0 : eligible[random_() % eligible.size()];
}

bool FakeQueue::execute_one() {
  FakeOperation operation;
  bool poisoned = false;
  {
    std::lock_guard lock(mutex_);
    if (queue_.empty() || executing_ || network_->held()) return false;
    const auto next = queue_.begin() + static_cast<std::ptrdiff_t>(next_index());
    operation = std::move(*next);
    queue_.erase(next);
    executing_ = true;
    poisoned = failed_ && operation.verb == FakeVerb::kNotify;
  }
  Status outcome;
  if (operation.fails) {
    outcome = Status::error(StatusCode::kTransferFailed, "this operation was told to fail");
  } else if (poisoned) {
    outcome = Status::error(StatusCode::kTransferFailed, "an operation before the notify failed");
  } else if (operation.verb != FakeVerb::kFlush) {
    outcome = target_->execute(operation);
  }
  network_->log({operation.verb, operation.serial});
  finish(std::move(operation), std::move(outcome));
  return true;
}

void FakeQueue::finish(FakeOperation operation, Status outcome) {
  std::lock_guard lock(mutex_);
  executing_ = false;
  failed_ = operation.verb != FakeVerb::kFlush && (failed_ || !outcome.ok());
  if (operation.borrows) --borrowing_;
  operation.outcome = std::move(outcome);
  operation.work = nullptr;
  done_.push_back(std::move(operation));
  idle_.notify_all();
}

std::size_t FakeQueue::fire() {
  // Fired under the mutex: close() cannot return between the take and the fire.
  std::lock_guard lock(mutex_);
  const std::size_t fired = done_.size();
  for (const FakeOperation& operation : done_) operation.completion->complete(operation.outcome);
  done_.clear();
  return fired;
}

void FakeQueue::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  idle_.wait(lock, [&] { return !executing_; });
  for (const FakeOperation& operation : done_) operation.completion->complete(canceled());
  for (const FakeOperation& operation : queue_) operation.completion->complete(canceled());
  done_.clear();
  queue_.clear();
  borrowing_ = 0;
}

void FakeQueue::fail_all(const Status& reason) {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !executing_; });
  for (FakeOperation& operation : queue_) {
    operation.outcome = reason;
    operation.work = nullptr;
    done_.push_back(std::move(operation));
  }
  queue_.clear();
  borrowing_ = 0;
}

bool FakeQueue::outstanding() const {
  std::lock_guard lock(mutex_);
  return !queue_.empty() || !done_.empty() || executing_;
}

// ---------------------------------------------------------------------------------------------
// port

void FakePort::start() {
  if (network_->options().target_executes) thread_ = std::thread([this] { work(); });
}

void FakePort::stop() {
  stopped_.store(true, std::memory_order_release);
  wake();
  if (thread_.joinable()) thread_.join();
  for (const auto& queue : live_inbound()) {
    queue->fail_all(Status::error(StatusCode::kPeerLost, "the peer is gone"));
  }
}

void FakePort::wake() {
  std::lock_guard lock(mutex_);
  signalled_ = true;
  wake_up_.notify_one();
}

std::uint64_t FakePort::add_region(const MemoryView& view) {
  std::lock_guard lock(regions_mutex_);
  regions_.emplace(next_region_, std::make_unique<MappedRegion>(view.addr, view.nbytes, nullptr));
  return next_region_++;
}

void FakePort::bind_region(std::uint64_t id, const RegionSync& sync) {
  std::lock_guard lock(regions_mutex_);
  regions_.at(id)->bind(sync);
}

void FakePort::remove_region(std::uint64_t id) {
  std::lock_guard lock(regions_mutex_);
  regions_.erase(id);
}

Status FakePort::execute(const FakeOperation& operation) {
  std::lock_guard lock(regions_mutex_);
  const auto found = regions_.find(operation.region);
  if (found == regions_.end()) {
    return Status::error(StatusCode::kStale, "the target has withdrawn the memory");
  }
  MappedEndpoint verbs;
  return operation.work(verbs, *found->second).status;
}

void FakePort::add_inbound(const std::shared_ptr<FakeQueue>& queue) {
  std::lock_guard lock(mutex_);
  inbound_.push_back(queue);
}

std::vector<std::shared_ptr<FakeQueue>> FakePort::live_inbound() {
  std::lock_guard lock(mutex_);
  std::erase_if(inbound_, [](const auto& queue) { return queue.expired(); });
  std::vector<std::shared_ptr<FakeQueue>> live;
  for (const auto& queue : inbound_) {
    if (auto strong = queue.lock()) live.push_back(std::move(strong));
  }
  return live;
}

void FakePort::work() {
  while (!stopped()) {
    {
      std::unique_lock lock(mutex_);
      wake_up_.wait(lock, [&] { return signalled_ || stopped(); });
      signalled_ = false;
    }
    // The wake-up came after the post: everything that was posted before it is found now.
    const auto queues = live_inbound();
    for (bool more = true; more && !stopped();) {
      more = false;
      for (const auto& queue : queues) more = queue->execute_one() || more;
    }
  }
}

}  // namespace hixl_rma::fakes

// SPDX-License-Identifier: Apache-2.0
//
// What a request may leave to the engine's thread.
//
// NOTE [asynchronous copies]
// Where every post is done when it returns, the caller makes the copy: the fastest way for whoever
// waits for it. Who asks for a request wants to compute meanwhile, so a large one is handed to the
// engine's thread: every check is made before, on the caller's thread. The thread does what it is
// given in that order, so a notification handed to it comes behind its payload and behind
// everything handed over earlier; whatever is published, flushed or closed by another thread waits
// for `behind` of the link. The window stays up meanwhile (`inside_`); when it is freed or aborted,
// what the thread has not begun ends as Canceled and touches no memory.
#include <utility>
#include <vector>

#include "window/window.h"

namespace hixl_rma {
namespace {

// Handing over and waking the thread costs about what copying this much does.
constexpr std::uint64_t kAsynchronousBytes = std::uint64_t{1} << 20;

}  // namespace

bool Window::goes_behind(const Link& to, const Issue& issue, std::uint64_t nbytes) {
  return issue.own != nullptr && nbytes >= kAsynchronousBytes && to.inline_data;
}

// work() -> Status runs on the engine's thread. The request's completion is the last thing of the
// caller's that is touched, the window the last of all.
template <class Work>
void Window::do_behind(int target, Issue& issue, Work&& work) {
  issue.pending = issue.behind = true;
  Completion* own = issue.own;
  own->add();
  link(target).behind.add();
  behind_.fetch_add(1, std::memory_order_relaxed);
  inside_.fetch_add(1);
  engine_->do_behind([this, target, own, work = std::forward<Work>(work)] {
    Status status = closing_.load() ? Status::error(StatusCode::kCanceled,
                                                    "the window was freed before the operation")
                                    : work();
    own->complete(status);
    link(target).behind.complete({});
    behind_.fetch_sub(1, std::memory_order_relaxed);
    ring(control_.header().doorbell);
    inside_.fetch_sub(1);
  });
}

void Window::move_behind(int target, bool put, std::span<const Piece> pieces, Issue& issue) {
  do_behind(target, issue,
            [this, target, put, owned = std::vector<Piece>(pieces.begin(), pieces.end())] {
              Issue inline_issue;
              const auto begin = Clock::now();
              Status status = post_pieces(target, put, owned, inline_issue);
              (put ? link(target).puts : link(target).gets).spent(nanoseconds_since(begin));
              return status;
            });
}

void Window::publish_behind(int target, const NotifySpec& spec, Issue& issue) {
  do_behind(target, issue, [this, target, spec, own = issue.own] {
    // A payload that failed delivers no notification. It came before, so its failure is known.
    return own->status().ok() ? write_notification(target, spec) : Status();
  });
}

}  // namespace hixl_rma

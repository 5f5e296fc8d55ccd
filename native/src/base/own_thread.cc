// SPDX-License-Identifier: Apache-2.0
#include "base/own_thread.h"

#include <pthread.h>

#include <memory>
#include <system_error>
#include <utility>

namespace hixl_rma {

OwnThread::~OwnThread() {
  if (!is_parents()) return;
  // Leaked: what there is to join or to detach is the parent's.
  [[maybe_unused]] const auto* leaked = std::make_unique<std::thread>(std::move(thread_)).release();
}

Status OwnThread::start(std::string name, std::function<void()> body) {
  fork_generation_ = fork_generation();
  try {
    thread_ = std::thread([name = std::move(name), body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    return Status::error(StatusCode::kResourceExhausted,
                         std::string("starting a thread failed: ") + error.what());
  }
  return {};
}

}  // namespace hixl_rma

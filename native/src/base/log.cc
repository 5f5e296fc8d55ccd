// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <deque>
#include <iterator>
#include <mutex>

namespace hixl_rma {
namespace {

struct LogBuffer {
  std::mutex mutex;
  std::deque<std::pair<LogLevel, std::string>> lines;
};

LogBuffer& buffer() {
  static auto* instance = new LogBuffer;  // NOLINT(cppcoreguidelines-owning-memory): outlives exit
  return *instance;
}

}  // namespace

void log_line(LogLevel level, std::string text) {
  LogBuffer& log = buffer();
  std::lock_guard lock(log.mutex);
  if (log.lines.size() == kMaxLogLines) log.lines.pop_front();
  log.lines.emplace_back(level, std::move(text));
}

std::vector<std::pair<LogLevel, std::string>> take_log() {
  LogBuffer& log = buffer();
  std::lock_guard lock(log.mutex);
  std::vector<std::pair<LogLevel, std::string>> lines(std::make_move_iterator(log.lines.begin()),
                                                      std::make_move_iterator(log.lines.end()));
  log.lines.clear();
  return lines;
}

}  // namespace hixl_rma

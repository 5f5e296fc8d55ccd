// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hixl_rma {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarning };

/// Keeps a line until the next take_log(). Native code never takes the GIL to log: whoever is in
/// Python anyway picks the lines up and hands them to the `hixl_rma` logger.
/// Thread: any. At most kMaxLogLines are kept; the oldest go first.
void log_line(LogLevel level, std::string text);

inline constexpr std::size_t kMaxLogLines = 1000;

/// Moves the kept lines out, oldest first.
std::vector<std::pair<LogLevel, std::string>> take_log();

}  // namespace hixl_rma

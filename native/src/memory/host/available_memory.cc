// SPDX-License-Identifier: Apache-2.0
#include "memory/host/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace hixl_rma {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// The number behind a word at the beginning of a line.
std::optional<std::uint64_t> number_after(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  std::string name;
  for (std::string line; file >> name;) {
    std::uint64_t value = 0;
    if (name == word && file >> value) return value;
    file.clear();
    std::getline(file, line);
  }
  return std::nullopt;
}

// A file that holds one number; "max" and a missing file give nothing.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Our folder below /sys/fs/cgroup: the line "0::/path" of /proc/self/cgroup (cgroups(7), version
// 2).
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  }
  return "/sys/fs/cgroup";
}

std::uint64_t left_in_group(const std::string& folder) {
  const auto limit = number_in(folder + "/memory.max");
  const auto used = number_in(folder + "/memory.current");
  if (!limit || !used) return kUnlimited;
  // Cached file pages count as used, but go when memory is wanted.
  const std::uint64_t cache = number_after(folder + "/memory.stat", "inactive_file").value_or(0);
  const std::uint64_t needed = *used - std::min(cache, *used);
  return *limit - std::min(needed, *limit);
}

}  // namespace

std::uint64_t available_memory() {
  const auto free = number_after("/proc/meminfo", "MemAvailable:");
  const auto swap = number_after("/proc/meminfo", "SwapFree:");
  const std::uint64_t host = free ? (*free + swap.value_or(0)) * 1024 : kUnlimited;
  return std::min(host, left_in_group(control_group()));
}

}  // namespace hixl_rma

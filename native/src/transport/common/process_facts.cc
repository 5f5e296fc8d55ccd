// SPDX-License-Identifier: Apache-2.0
#include "transport/common/process_facts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <sstream>

#include "base/fork.h"

namespace hixl_rma {
namespace {

std::uint64_t inode_of(const char* path) {
  struct stat facts{};
  return stat(path, &facts) == 0 ? facts.st_ino : 0;
}

Token instance_token() {
  static std::mutex mutex;
  static Token token = random_token();
  static int forks = fork_generation();
  std::lock_guard lock(mutex);
  if (forks != fork_generation()) {
    token = random_token();
    forks = fork_generation();
  }
  return token;
}

}  // namespace

std::uint64_t start_time_of(std::uint64_t pid) {
  // That of the first thread is that of the process. Emulators such as qemu make up
  // /proc/<pid>/stat of their own process, and each thread of it another one.
  const std::string number = std::to_string(pid);
  std::ifstream file("/proc/" + number + "/task/" + number + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  // The name in parentheses may hold anything; field 22 is the 20th after it (proc_pid_stat(5)).
  const auto close = line.rfind(')');
  if (close == std::string::npos) return 0;
  std::istringstream fields(line.substr(close + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  return fields ? std::stoull(field) : 0;
}

ProcessFacts process_facts() {
  ProcessFacts facts;
  facts.instance = instance_token();
  std::ifstream("/proc/sys/kernel/random/boot_id") >> facts.boot_id;
  facts.pid = static_cast<std::uint64_t>(getpid());
  facts.start_time = start_time_of(facts.pid);
  facts.uid = getuid();
  facts.pid_namespace = inode_of("/proc/self/ns/pid");
  facts.user_namespace = inode_of("/proc/self/ns/user");
  facts.net_namespace = inode_of("/proc/self/ns/net");
  return facts;
}

}  // namespace hixl_rma

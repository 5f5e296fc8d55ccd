// SPDX-License-Identifier: Apache-2.0
#include "engine/peer_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/wire.h"
#include "support/channel.h"
#include "support/status_assert.h"

namespace hixl_rma::testing {
namespace {

constexpr int kPatience = 10000;  // [ms] nothing that works comes near it

Bytes identity_of(Child& child) {
  Bytes identity;
  EXPECT_TRUE(child.channel().receive(&identity));
  return identity;
}

// Tells who it is and waits to be killed.
void live(Channel& channel) {
  const auto beacon = ProcessBeacon::of_process();
  channel.send(beacon->identity());
  channel.receive_number();
}

bool ends_within_patience(PeerProcess& process) {
  pollfd entry{process.descriptor(), POLLIN, 0};
  return poll(&entry, 1, kPatience) == 1 && process.gone();
}

// The same process as another PID namespace names it.
Bytes from_another_namespace(ByteSpan identity) {
  WireReader reader(identity);
  const auto version = reader.number<std::uint32_t>();
  const std::string boot_id = reader.text();
  const auto pid_namespace = reader.number<std::uint64_t>();
  const auto net_namespace = reader.number<std::uint64_t>();
  const auto pid = reader.number<std::uint64_t>();
  const auto start_time = reader.number<std::uint64_t>();
  const std::string beacon = reader.text();
  return WireWriter()
      .number(version)
      .text(boot_id)
      .number(pid_namespace + 1)
      .number(net_namespace)
      .number(pid)
      .number(start_time)
      .text(beacon)
      .take();
}

TEST(PeerProcess, a_killed_process_is_seen_to_end) {
  Child child(live);
  auto process = PeerProcess::watch(identity_of(child));
  ASSERT_OK(process);
  EXPECT_FALSE(process.value()->gone());
  child.kill();
  EXPECT_TRUE(ends_within_patience(*process.value()));
}

TEST(PeerProcess, a_killed_process_of_another_pid_namespace_is_seen_to_end) {
  Child child(live);
  auto process = PeerProcess::watch(from_another_namespace(identity_of(child)));
  ASSERT_OK(process);
  EXPECT_FALSE(process.value()->gone());
  child.kill();
  EXPECT_TRUE(ends_within_patience(*process.value()));
}

TEST(PeerProcess, a_stopped_process_lives) {
  Child child(live);
  auto process = PeerProcess::watch(identity_of(child));
  ASSERT_OK(process);
  ::kill(child.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  EXPECT_FALSE(process.value()->gone());
  ::kill(child.pid(), SIGCONT);
}

TEST(PeerProcess, a_process_that_ended_before_is_lost_by_either_way) {
  Bytes identity;
  {
    Child child(live);
    identity = identity_of(child);
    child.kill();
  }
  EXPECT_CODE(PeerProcess::watch(identity).status(), StatusCode::kPeerLost);
  EXPECT_CODE(PeerProcess::watch(from_another_namespace(identity)).status(), StatusCode::kPeerLost);
}

TEST(PeerProcess, a_forked_child_that_lives_on_does_not_hide_the_end) {
  Child child([](Channel& channel) {
    const auto beacon = ProcessBeacon::of_process();
    const int grandchild = fork();
    if (grandchild == 0) {
      pause();
      _exit(0);
    }
    channel.send(beacon->identity());
    channel.send_number(static_cast<std::uint64_t>(grandchild));
    channel.receive_number();
  });
  auto process = PeerProcess::watch(from_another_namespace(identity_of(child)));
  ASSERT_OK(process);
  const auto grandchild = static_cast<pid_t>(child.channel().receive_number());
  ASSERT_GT(grandchild, 0);
  child.kill();
  EXPECT_TRUE(ends_within_patience(*process.value()));
  ::kill(grandchild, SIGKILL);
}

TEST(PeerProcess, one_object_serves_everybody_who_watches_a_process) {
  const auto beacon = ProcessBeacon::of_process();
  auto one = PeerProcess::watch(beacon->identity());
  auto other = PeerProcess::watch(beacon->identity());
  ASSERT_OK(one);
  ASSERT_OK(other);
  EXPECT_EQ(one.value(), other.value());
  EXPECT_FALSE(one.value()->gone());
}

TEST(PeerProcess, a_damaged_identity_is_refused) {
  const Bytes identity = ProcessBeacon::of_process()->identity();
  for (std::size_t cut = 0; cut < identity.size(); ++cut) {
    EXPECT_CODE(PeerProcess::watch(ByteSpan(identity).first(cut)).status(),
                StatusCode::kProtocolMismatch);
  }
}

TEST(PeerProcess, a_process_of_another_host_is_not_watched) {
  Bytes identity = ProcessBeacon::of_process()->identity();
  identity[8] ^= std::byte{1};  // within the boot id
  auto process = PeerProcess::watch(identity);
  ASSERT_OK(process);
  EXPECT_EQ(process.value()->descriptor(), -1);
  EXPECT_FALSE(process.value()->gone());
}

}  // namespace
}  // namespace hixl_rma::testing

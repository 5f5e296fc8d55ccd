// SPDX-License-Identifier: Apache-2.0
//
// What shm alone promises: how segments are handed over, and that nothing is left of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "base/wire.h"
#include "memory/host/available_memory.h"
#include "memory/host/shared_segment.h"
#include "support/channel.h"
#include "support/identity.h"
#include "support/patience.h"
#include "support/pattern.h"
#include "support/status_assert.h"
#include "transport/common/segment_server.h"
#include "transport/shm/factory.h"

namespace hixl_rma::testing {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

bool has_server_thread() {
  return std::ranges::any_of(std::filesystem::directory_iterator("/proc/self/task"),
                             [](const auto& task) {
                               std::string name;
                               std::ifstream(task.path() / "comm") >> name;
                               return name == "hixl-segments";
                             });
}

Bytes key_of(const std::string& socket_name, const Token& token, std::uint64_t offset,
             std::uint64_t nbytes) {
  return WireWriter().text(socket_name).bytes(token).number(offset).number(nbytes).take();
}

/// A descriptor offered by a server of its own and imported by a transport.
Status import_descriptor(int fd, std::uint64_t offset, std::uint64_t nbytes) {
  auto transport = probe_shm();
  if (!transport.ok()) return transport.status();
  SegmentServer server;
  auto token = server.offer(fd);
  if (!token.ok()) return token.status();
  return transport.value()
      ->import_region(key_of(server.socket_name(), token.value(), offset, nbytes), soon())
      .status();
}

Descriptor make_memfd(std::size_t nbytes, int seals) {
  Descriptor descriptor(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(descriptor.get(), static_cast<off_t>(nbytes)), 0);
  EXPECT_EQ(fcntl(descriptor.get(), F_ADD_SEALS, seals), 0);
  return descriptor;
}

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

TEST(Shm, the_thread_and_its_descriptors_live_only_while_something_is_offered) {
  auto transport = probe_shm();
  ASSERT_OK(transport);
  auto segment = SharedSegment::create(kPage, {});
  ASSERT_OK(segment);
  const std::size_t descriptors = entries_of("/proc/self/fd");
  ASSERT_FALSE(has_server_thread());
  const MemoryView view{segment.value()->data(), kPage, MemoryKind::kHost, segment.value().get()};
  auto first = transport.value()->register_memory(view, Access::kReadWrite);
  auto second = transport.value()->register_memory(view, Access::kReadWrite);
  ASSERT_OK(first);
  ASSERT_OK(second);
  auto imported = transport.value()->import_region(first.value()->packed_key(), soon());
  ASSERT_OK(imported);
  EXPECT_TRUE(has_server_thread());
  first.value()->stop_offering();
  EXPECT_TRUE(has_server_thread());  // the other one is still offered
  second.value()->stop_offering();
  // It was joined; the kernel takes it off the list a moment later.
  const Deadline deadline = soon();
  while (has_server_thread() && !deadline.expired()) std::this_thread::yield();
  EXPECT_FALSE(has_server_thread());
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_CODE(transport.value()->import_region(second.value()->packed_key(), soon()).status(),
              StatusCode::kUnavailable);
}

TEST(Shm, a_wrong_token_is_refused) {
  auto segment = SharedSegment::create(kPage, {});
  ASSERT_OK(segment);
  SegmentServer server;
  auto token = server.offer(segment.value()->fd());
  ASSERT_OK(token);
  Token wrong = token.value();
  wrong.back() ^= std::byte{1};
  EXPECT_CODE(request_segment(server.socket_name(), wrong, soon()).status(),
              StatusCode::kAccessDenied);
  EXPECT_OK(request_segment(server.socket_name(), token.value(), soon()));
  server.withdraw(token.value());
}

TEST(Shm, a_client_that_says_nothing_does_not_keep_the_others_out) {
  auto segment = SharedSegment::create(kPage, {});
  ASSERT_OK(segment);
  SegmentServer server;
  auto token = server.offer(segment.value()->fd());
  ASSERT_OK(token);
  const std::string name = server.socket_name();
  Descriptor silent(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::ranges::copy(name, address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(connect(silent.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  EXPECT_OK(request_segment(name, token.value(), soon()));
}

TEST(Shm, only_sealed_memory_of_the_announced_size_is_mapped) {
  const Descriptor sealed = make_memfd(2 * kPage, kAllSeals);
  EXPECT_OK(import_descriptor(sealed.get(), 0, 2 * kPage));
  EXPECT_OK(import_descriptor(sealed.get(), kPage, kPage));
  for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
    const Descriptor weak = make_memfd(2 * kPage, kAllSeals & ~missing);
    EXPECT_CODE(import_descriptor(weak.get(), 0, kPage), StatusCode::kProtocolMismatch);
  }
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const std::array<std::pair<std::uint64_t, std::uint64_t>, 6> bad = {{
      {0, 2 * kPage + 1},
      {kPage, kPage + 1},
      {2 * kPage, 1},
      {0, 0},
      {0, kHuge},
      {kHuge - kPage + 1, kPage},
  }};
  for (const auto& [offset, nbytes] : bad) {
    EXPECT_CODE(import_descriptor(sealed.get(), offset, nbytes), StatusCode::kProtocolMismatch)
        << offset << " + " << nbytes;
  }
}

TEST(Shm, a_file_of_another_kind_is_not_mapped) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(ftruncate(fileno(file.get()), kPage), 0);
  EXPECT_CODE(import_descriptor(fileno(file.get()), 0, kPage), StatusCode::kProtocolMismatch);
}

TEST(Shm, nothing_has_a_name_in_the_file_system) {
  const std::size_t before = entries_of("/dev/shm");
  auto transport = probe_shm();
  ASSERT_OK(transport);
  auto segment = SharedSegment::create(kPage, {});
  ASSERT_OK(segment);
  SegmentServer server;
  ASSERT_OK(server.offer(segment.value()->fd()));
  EXPECT_EQ(entries_of("/dev/shm"), before);
  std::ifstream table("/proc/net/unix");
  bool found = false;
  for (std::string line; std::getline(table, line);) {
    const auto at = line.find(server.socket_name());
    if (at == std::string::npos) continue;
    found = true;
    EXPECT_EQ(line.at(at - 1), '@') << line;  // abstract: no file
  }
  EXPECT_TRUE(found);
}

TEST(Shm, more_memory_than_there_is_is_refused_before_any_is_taken) {
  const std::uint64_t available = available_memory();
  EXPECT_GT(available, std::uint64_t{1} << 20);
  EXPECT_LT(available, std::uint64_t{1} << 60);
  for (const std::size_t nbytes : {available, 2 * available, std::size_t{1} << 61}) {
    const std::array<SharedSegment::Range, 1> all = {SharedSegment::Range{0, nbytes}};
    EXPECT_CODE(SharedSegment::create(nbytes, all).status(), StatusCode::kResourceExhausted);
  }
  EXPECT_CODE(SharedSegment::create(0, {}).status(), StatusCode::kResourceExhausted);
  EXPECT_CODE(SharedSegment::create(std::size_t{1} << 63, {}).status(),
              StatusCode::kResourceExhausted);
}

TEST(Shm, memory_outside_a_segment_is_unsupported) {
  auto transport = probe_shm();
  ASSERT_OK(transport);
  Bytes memory(64);
  EXPECT_CODE(transport.value()
                  ->register_memory({memory.data(), memory.size()}, Access::kReadWrite)
                  .status(),
              StatusCode::kUnsupported);
}

TEST(Shm, a_mapping_outlives_a_peer_that_was_killed) {
  Child peer([](Channel& channel) {
    auto transport = probe_shm();
    auto segment = SharedSegment::create(kPage, {});
    fill_pattern(segment.value()->data(), kPage, 4);
    const MemoryView view{segment.value()->data(), kPage, MemoryKind::kHost, segment.value().get()};
    auto region = transport.value()->register_memory(view, Access::kReadWrite);
    (void)channel.send(region.value()->packed_key());
    (void)channel.receive_number();
  });
  Bytes key;
  ASSERT_TRUE(peer.channel().receive(&key));
  auto transport = probe_shm();
  ASSERT_OK(transport);
  auto region = transport.value()->import_region(key, soon());
  ASSERT_OK(region);
  peer.kill();
  EXPECT_EQ(first_mismatch(region.value()->mapped(), kPage, 4), kPage);
  region.value()->mapped()[0] = std::byte{1};
  EXPECT_CODE(transport.value()->import_region(key, soon()).status(), StatusCode::kUnavailable);
}

TEST(Shm, a_segment_is_not_handed_to_another_user) {
  if (!may_become_nobody()) GTEST_SKIP() << "becoming another user takes root";
  auto segment = SharedSegment::create(kPage, {});
  ASSERT_OK(segment);
  Child stranger([](Channel& channel) {
    Bytes name;
    Bytes token;
    EXPECT_TRUE(channel.receive(&name) && channel.receive(&token));
    EXPECT_TRUE(become_nobody());
    // By hand: request_segment would not even ask a socket of another user.
    const Descriptor client(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::ranges::copy(name, reinterpret_cast<std::byte*>(address.sun_path + 1));
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    (void)send(client.get(), token.data(), token.size(), MSG_NOSIGNAL);
    char answer = 0;
    EXPECT_LE(recv(client.get(), &answer, 1, 0), 0);
    Token asked{};
    std::ranges::copy(token, asked.begin());
    const std::string text(reinterpret_cast<const char*>(name.data()), name.size());
    EXPECT_CODE(request_segment(text, asked, soon()).status(), StatusCode::kAccessDenied);
  });
  SegmentServer server;
  auto token = server.offer(segment.value()->fd());
  ASSERT_OK(token);
  const std::string name = server.socket_name();
  ASSERT_TRUE(stranger.channel().send(std::as_bytes(std::span(name))));
  ASSERT_TRUE(stranger.channel().send(token.value()));
  EXPECT_EQ(stranger.wait(), 0);
}

}  // namespace hixl_rma::testing

// SPDX-License-Identifier: Apache-2.0
#include "base/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "hixl_rma/memory.h"

namespace hixl_rma {
namespace {

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Wire, numbers_are_little_endian_whatever_the_machine) {
  const Bytes written = WireWriter()
                            .number(std::uint8_t{1})
                            .number(std::uint16_t{0x0203})
                            .number(std::uint32_t{0x04050607})
                            .take();
  EXPECT_EQ(written, bytes_of({1, 3, 2, 7, 6, 5, 4}));
}

TEST(Wire, what_was_written_is_read_back) {
  const std::string text("with\0zero", 9);
  const Bytes written = WireWriter()
                            .number(std::numeric_limits<std::uint64_t>::max())
                            .text(text)
                            .bytes(bytes_of({9, 8}))
                            .text("")
                            .number(std::uint16_t{77})
                            .take();
  WireReader reader(written);
  EXPECT_EQ(reader.number<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(reader.text(), text);
  const ByteSpan bytes = reader.bytes();
  EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), bytes_of({9, 8}));
  EXPECT_EQ(reader.text(), "");
  EXPECT_FALSE(reader.finished());
  EXPECT_EQ(reader.number<std::uint16_t>(), 77U);
  EXPECT_TRUE(reader.finished());
}

TEST(Wire, a_message_cut_anywhere_is_not_finished_and_reads_as_nothing) {
  const Bytes whole =
      WireWriter().number(std::uint32_t{5}).text("abc").number(~std::uint64_t{0}).take();
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    WireReader reader(ByteSpan(whole).first(cut));
    (void)reader.number<std::uint32_t>();
    (void)reader.text();
    EXPECT_EQ(reader.number<std::uint64_t>(), 0U);
    EXPECT_FALSE(reader.ok());
    EXPECT_FALSE(reader.finished());
  }
}

TEST(Wire, a_message_that_is_too_long_is_not_finished) {
  const Bytes longer = WireWriter().number(std::uint32_t{5}).number(std::uint8_t{0}).take();
  WireReader reader(longer);
  EXPECT_EQ(reader.number<std::uint32_t>(), 5U);
  EXPECT_TRUE(reader.ok());
  EXPECT_FALSE(reader.finished());
}

TEST(Wire, a_length_beyond_the_message_gives_nothing) {
  for (const std::uint32_t length : {4U, 0x7fffffffU, 0x80000000U, 0xfffffffcU, 0xffffffffU}) {
    const Bytes lying =
        WireWriter().number(length).number(std::uint16_t{1}).number(std::uint8_t{1}).take();
    WireReader reader(lying);
    EXPECT_TRUE(reader.bytes().empty()) << length;
    EXPECT_FALSE(reader.ok()) << length;
  }
}

TEST(Wire, after_the_first_error_nothing_is_read_any_more) {
  const Bytes lying = WireWriter().number(std::uint32_t{100}).number(std::uint64_t{1}).take();
  WireReader reader(lying);
  EXPECT_TRUE(reader.text().empty());
  EXPECT_EQ(reader.number<std::uint8_t>(), 0U);
  EXPECT_TRUE(reader.bytes().empty());
  EXPECT_FALSE(reader.finished());
}

TEST(Wire, random_bytes_are_read_within_their_bounds) {
  std::minstd_rand random(1);
  for (int round = 0; round < 20000; ++round) {
    Bytes noise(random() % 40);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random() % 3 == 0 ? random() : 0);
    WireReader reader(noise);
    for (int i = 0; i < 6 && reader.ok(); ++i) {
      const ByteSpan view = reader.bytes();
      if (view.empty()) continue;
      EXPECT_GE(view.data(), noise.data());
      EXPECT_LE(view.data() + view.size(), noise.data() + noise.size());
    }
  }
}

TEST(InRange, holds_exactly_when_every_byte_is_inside) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  struct Line {
    std::uint64_t offset, length, size;
    bool inside;
  };
  constexpr std::array<Line, 16> kTable = {{
      {0, 0, 0, true},
      {0, 1, 0, false},
      {1, 0, 0, false},
      {0, 10, 10, true},
      {0, 11, 10, false},
      {10, 0, 10, true},
      {10, 1, 10, false},
      {9, 1, 10, true},
      {9, 2, 10, false},
      {11, 0, 10, false},
      {kMax, 1, 10, false},
      {1, kMax, 10, false},
      {kMax, kMax, kMax, false},
      {kMax, 0, kMax, true},
      {0, kMax, kMax, true},
      {2, kMax - 1, kMax, false},
  }};
  for (const Line& line : kTable) {
    EXPECT_EQ(in_range(line.offset, line.length, line.size), line.inside)
        << line.offset << " + " << line.length << " in " << line.size;
  }
}

}  // namespace
}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
//
// Claims about put, get and their lists. Origin and target are filled from different seeds, and
// what surrounds the moved bytes is checked, too.
#include <algorithm>
#include <array>
#include <vector>

#include "base/wire.h"
#include "conformance/claims.h"
#include "support/patience.h"
#include "support/pattern.h"

namespace hixl_rma::testing {
namespace {

constexpr std::array<std::size_t, 11> kSizes = {
    0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, (std::size_t{1} << 20) + 3};
constexpr std::size_t kGuard = 96;
constexpr std::uint64_t kFarSeed = 1;
constexpr std::uint64_t kNearSeed = 2;

struct Shift {
  std::size_t near;
  std::size_t far;
};
constexpr std::array<Shift, 5> kShifts = {{{0, 0}, {1, 0}, {0, 3}, {5, 2}, {7, 7}}};

// The far side's bytes around a place, as they were filled before the operation.
void expect_guards(const Bytes& seen, std::size_t moved, const char* what) {
  const Bytes filled = make_pattern(seen.size(), kFarSeed);
  EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + kGuard, filled.begin())) << what;
  EXPECT_TRUE(std::equal(seen.begin() + static_cast<std::ptrdiff_t>(kGuard + moved), seen.end(),
                         filled.begin() + static_cast<std::ptrdiff_t>(kGuard + moved)))
      << what;
}

}  // namespace

TEST_P(DataClaims, a_put_places_every_byte_and_touches_no_other) {
  for (const std::size_t size : kSizes) {
    for (const Shift& shift : kShifts) {
      const Bytes origin = make_pattern(size + shift.near, kNearSeed);
      const std::uint64_t start = kPayload + shift.far;
      target().fill(start, size + 2 * kGuard, kFarSeed);
      ASSERT_OK(near().put(origin.data() + shift.near, start + kGuard, size));
      ASSERT_OK(near().flush(FlushScope::kRemote));
      const Bytes seen = target().read(start, size + 2 * kGuard);
      EXPECT_TRUE(std::equal(origin.begin() + static_cast<std::ptrdiff_t>(shift.near), origin.end(),
                             seen.begin() + kGuard))
          << size << " bytes";
      expect_guards(seen, size, "put");
    }
  }
}

TEST_P(DataClaims, a_get_brings_every_byte_and_touches_no_other) {
  for (const std::size_t size : kSizes) {
    for (const Shift& shift : kShifts) {
      const std::uint64_t start = kPayload + shift.far;
      target().fill(start, size, kNearSeed);
      Bytes origin = make_pattern(size + 2 * kGuard + shift.near, kFarSeed);
      const Bytes before = origin;
      std::byte* to = origin.data() + kGuard + shift.near;
      ASSERT_OK(near().get(to, start, size));
      EXPECT_EQ(first_mismatch(to, size, kNearSeed), size);
      EXPECT_TRUE(std::equal(origin.data(), to, before.data()));
      EXPECT_TRUE(std::equal(to + size, origin.data() + origin.size(),
                             before.data() + (to + size - origin.data())));
    }
  }
}

TEST_P(DataClaims, the_source_is_reusable_after_a_local_flush) {
  constexpr std::array<std::size_t, 3> kLengths = {64, 5000, 300000};
  for (const std::size_t length : kLengths) {
    Bytes origin = make_pattern(length, kNearSeed);
    Completion completion;
    const Piece piece{origin.data(), kPayload + 1, length};
    ASSERT_OK(near().issue(completion, [&](Completion* done) {
      return near().endpoint().put(near().remote(), piece, done);
    }));
    ASSERT_OK(near().flush(FlushScope::kLocal));
    std::ranges::fill(origin, std::byte{0xee});
    ASSERT_OK(near().flush(FlushScope::kRemote));
    while (!completion.done()) near().engine().idle();
    const Bytes seen = target().read(kPayload + 1, length);
    EXPECT_EQ(first_mismatch(seen.data(), length, kNearSeed), length);
  }
}

TEST_P(DataClaims, everything_put_before_a_remote_flush_is_at_the_target_after_it) {
  constexpr std::size_t kPuts = 100;
  constexpr std::size_t kLength = 1111;
  const Bytes origin = make_pattern(kPuts * kLength, kNearSeed);
  Completion completion;
  for (std::size_t i = 0; i < kPuts; ++i) {
    const Piece piece{const_cast<std::byte*>(origin.data()) + i * kLength,
                      kPayload + 3 + i * kLength, kLength};
    ASSERT_OK(near().issue(completion, [&](Completion* done) {
      return near().endpoint().put(near().remote(), piece, done);
    }));
  }
  ASSERT_OK(near().flush(FlushScope::kRemote));
  EXPECT_EQ(target().read(kPayload + 3, origin.size()), origin);
  while (!completion.done()) near().engine().idle();
  EXPECT_OK(completion.status());
}

TEST_P(DataClaims, one_list_may_have_thousands_of_pieces_of_any_length) {
  constexpr std::size_t kPieces = 3000;  // more than the kernel takes in one call
  const Bytes origin = make_pattern(kPieces * 40, kNearSeed);
  target().fill(kPayload, kPieces * 64, kFarSeed);
  Bytes expected = make_pattern(kPieces * 64, kFarSeed);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::size_t length = i % 41;  // none and odd lengths among them
    std::byte* from = const_cast<std::byte*>(origin.data()) + i * 40 % (origin.size() - 40);
    const std::size_t place = (kPieces - 1 - i) * 64 + i % 5;
    pieces.push_back({from, kPayload + place, length});
    std::copy_n(from, length, expected.begin() + static_cast<std::ptrdiff_t>(place));
  }
  ASSERT_OK(near().put_v(pieces));
  ASSERT_OK(near().flush(FlushScope::kRemote));
  EXPECT_EQ(target().read(kPayload, expected.size()), expected);

  Bytes back(kPieces * 41);
  for (std::size_t i = 0; i < kPieces; ++i) pieces[i].local = back.data() + i * 41;
  ASSERT_OK(near().get_v(pieces));
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::size_t place = (kPieces - 1 - i) * 64 + i % 5;
    ASSERT_TRUE(std::equal(back.begin() + static_cast<std::ptrdiff_t>(i * 41),
                           back.begin() + static_cast<std::ptrdiff_t>(i * 41 + i % 41),
                           expected.begin() + static_cast<std::ptrdiff_t>(place)))
        << "piece " << i;
  }
}

TEST_P(DataClaims, an_empty_list_is_fine) {
  EXPECT_OK(near().put_v({}));
  EXPECT_OK(near().get_v({}));
  EXPECT_OK(near().flush(FlushScope::kRemote));
}

TEST_P(DataClaims, what_is_put_can_be_got_back) {
  const Bytes origin = make_pattern(100000, 9);
  Bytes back(origin.size());
  ASSERT_OK(near().put(origin.data(), kPayload + 13, origin.size()));
  ASSERT_OK(near().flush(FlushScope::kRemote));
  ASSERT_OK(near().get(back.data(), kPayload + 13, back.size()));
  EXPECT_EQ(back, origin);
}

TEST_P(DataClaims, damaged_keys_are_refused) {
  WireReader reader(target().introduction());
  const ByteSpan address = reader.bytes();
  const ByteSpan keys = reader.bytes();
  auto peer = near().engine().connect(address, true);
  ASSERT_OK(peer);
  for (std::size_t cut = 0; cut < keys.size(); ++cut) {
    auto imported = near().engine().import_region(*peer.value(), keys.first(cut), 1, soon());
    EXPECT_CODE(imported.status(), StatusCode::kProtocolMismatch) << "cut to " << cut << " bytes";
  }
  Bytes longer(keys.begin(), keys.end());
  longer.push_back(std::byte{0});
  EXPECT_CODE(near().engine().import_region(*peer.value(), longer, 1, soon()).status(),
              StatusCode::kProtocolMismatch);
}

TEST_P(DataClaims, damaged_addresses_are_refused) {
  WireReader reader(target().introduction());
  const ByteSpan address = reader.bytes();
  for (std::size_t cut = 0; cut < address.size(); ++cut) {
    EXPECT_CODE(near().engine().connect(address.first(cut), true).status(),
                StatusCode::kProtocolMismatch)
        << "cut to " << cut << " bytes";
  }
}

TEST_P(DataClaims, a_region_says_how_long_it_is) {
  EXPECT_EQ(near().remote().nbytes(), kRegionBytes);
}

}  // namespace hixl_rma::testing

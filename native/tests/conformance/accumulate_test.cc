// SPDX-License-Identifier: Apache-2.0
//
// Claims about the accumulate family.
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "conformance/claims.h"
#include "hixl_rma/reduce.h"
#include "support/patience.h"
#include "support/pattern.h"

namespace hixl_rma::testing {
namespace {

template <class T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

template <class T>
const std::byte* bytes_of(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

}  // namespace

TEST_P(AccumulateClaims, every_supported_pair_gives_what_reduce_gives) {
  constexpr std::size_t kBytes = 960;  // a multiple of every element
  for (std::size_t t = 0; t < kDataTypeCount; ++t) {
    for (std::size_t o = 0; o < kReduceOpCount; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!is_supported(type, op) || name_of(type).find("longdouble") != std::string_view::npos) {
        continue;  // padding bytes of the 80-bit formats are nobody's
      }
      Bytes operand(kBytes);
      for (std::size_t i = 0; i < kBytes; ++i) operand[i] = pattern_at(1, i) & std::byte{0x3f};
      Bytes expected = make_pattern(kBytes, 2);
      target().fill(kPayload, kBytes, 2);
      const std::size_t count = kBytes / size_of(type);
      reduce(type, op, expected.data(), operand.data(), count);
      Bytes old(kBytes);
      ASSERT_OK(near().accumulate({type, op, operand.data(), old.data(), kPayload, count}));
      ASSERT_OK(near().flush(FlushScope::kRemote));
      EXPECT_EQ(target().read(kPayload, kBytes), expected) << name_of(type) << name_of(op);
      EXPECT_EQ(old, make_pattern(kBytes, 2)) << name_of(type) << name_of(op);
    }
  }
}

TEST_P(AccumulateClaims, a_long_one_crosses_stripes_and_touches_nothing_else) {
  constexpr std::size_t kCount = 3000;
  std::vector<double> operand(kCount);
  std::iota(operand.begin(), operand.end(), 1.0);
  const std::uint64_t offset = kPayload + 4004;  // elements lie across the stripes' ends
  const Bytes before = target().read(offset - 64, kCount * 8 + 128);
  ASSERT_OK(near().accumulate(
      {DataType::kFloat64, ReduceOp::kSum, bytes_of(operand), nullptr, offset, kCount}));
  ASSERT_OK(near().flush(FlushScope::kRemote));
  const Bytes seen = target().read(offset, kCount * 8);
  EXPECT_EQ(values_of<double>(seen), operand);
  EXPECT_EQ(target().read(offset - 64, 64), Bytes(before.begin(), before.begin() + 64));
  EXPECT_EQ(target().read(offset + kCount * 8, 64), Bytes(64));
}

TEST_P(AccumulateClaims, no_op_with_a_result_is_an_atomic_get) {
  target().fill(kPayload, 4000, 3);
  Bytes result(4000);
  ASSERT_OK(near().accumulate(
      {DataType::kFloat32, ReduceOp::kNoOp, nullptr, result.data(), kPayload, 1000}));
  EXPECT_EQ(result, make_pattern(4000, 3));
  EXPECT_EQ(target().read(kPayload, 4000), make_pattern(4000, 3));
}

TEST_P(AccumulateClaims, the_old_values_may_take_the_place_of_the_operand) {
  constexpr std::size_t kCount = 1500;
  std::vector<double> values(kCount);
  std::iota(values.begin(), values.end(), 1.0);
  const std::vector<double> operand = values;
  Accumulate operation{DataType::kFloat64, ReduceOp::kSum, bytes_of(values)};
  operation.result = reinterpret_cast<std::byte*>(values.data());
  operation.offset = kPayload + 8;
  operation.count = kCount;
  ASSERT_OK(near().accumulate(operation));
  EXPECT_EQ(values, std::vector<double>(kCount));
  ASSERT_OK(near().flush(FlushScope::kRemote));
  EXPECT_EQ(values_of<double>(target().read(kPayload + 8, kCount * 8)), operand);
}

TEST_P(AccumulateClaims, a_pair_without_meaning_is_refused_and_changes_nothing) {
  target().fill(kPayload, 64, 4);
  const Bytes operand(64);
  EXPECT_CODE(near().accumulate(
                  {DataType::kFloat64, ReduceOp::kBxor, operand.data(), nullptr, kPayload, 8}),
              StatusCode::kInvalidType);
  EXPECT_EQ(target().read(kPayload, 64), make_pattern(64, 4));
}

TEST_P(AccumulateClaims, it_is_atomic_whoever_executes_it) {
  const auto times = static_cast<std::uint64_t>(rounds(300, 40));
  constexpr std::size_t kCount = 700;  // two stripes
  constexpr std::size_t kThreads = 2;
  const std::vector<double> ones(kCount, 1.0);
  target().start_accumulating(times, kCount);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < times; ++i) {
        EXPECT_OK(near().accumulate(
            {DataType::kFloat64, ReduceOp::kSum, bytes_of(ones), nullptr, kPayload, kCount}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(target().told());
  const std::vector<double> expected(kCount, static_cast<double>((kThreads + 1) * times));
  EXPECT_EQ(values_of<double>(target().read(kPayload, kCount * 8)), expected);
}

TEST_P(AccumulateClaims, operations_of_one_origin_keep_their_order) {
  constexpr std::uint64_t kTimes = 200;
  std::vector<std::uint64_t> olds(kTimes);
  std::vector<std::uint64_t> operands(kTimes);
  std::iota(operands.begin(), operands.end(), 1U);
  Completion completion;
  for (std::uint64_t i = 0; i < kTimes; ++i) {
    const Accumulate replace{DataType::kUint64,
                             ReduceOp::kReplace,
                             reinterpret_cast<const std::byte*>(&operands[i]),
                             reinterpret_cast<std::byte*>(&olds[i]),
                             kPayload,
                             1};
    ASSERT_OK(near().issue(completion, [&](Completion* done) {
      return near().endpoint().accumulate(near().remote(), replace, done);
    }));
  }
  while (!completion.done()) near().engine().idle();
  for (std::uint64_t i = 0; i < kTimes; ++i) EXPECT_EQ(olds[i], i);
}

TEST_P(AccumulateClaims, swap_element_stores_only_where_the_element_is_as_expected) {
  const std::int32_t compare = 0;
  const std::int32_t desired = -7;
  std::int32_t result = 1;
  const ElementSwap swap{DataType::kInt32, reinterpret_cast<const std::byte*>(&compare),
                         reinterpret_cast<const std::byte*>(&desired),
                         reinterpret_cast<std::byte*>(&result), kPayload + 4};
  ASSERT_OK(near().swap_element(swap));
  EXPECT_EQ(result, 0);
  ASSERT_OK(near().swap_element(swap));
  EXPECT_EQ(result, -7);
  const auto seen = values_of<std::int32_t>(target().read(kPayload, 12));
  EXPECT_EQ(seen, (std::vector<std::int32_t>{0, -7, 0}));
}

}  // namespace hixl_rma::testing

// SPDX-License-Identifier: Apache-2.0
//
// For whom the claims are checked: a new transport joins with lines in this table.
#include <string>

#include "conformance/claims.h"

namespace hixl_rma::testing {
namespace {

constexpr Trial kSelf = {.label = "self", .transport = "self"};
constexpr Trial kShmThreads = {.label = "shm_threads", .transport = "shm"};
constexpr Trial kShmProcesses = {
    .label = "shm_processes", .transport = "shm", .place = Place::kProcess};
constexpr Trial kCmaThreads = {.label = "cma_threads", .transport = "cma"};
constexpr Trial kCmaProcesses = {
    .label = "cma_processes", .transport = "cma", .place = Place::kProcess};
constexpr Trial kStagedThreads = {.label = "staged_threads", .transport = "staged"};
constexpr Trial kStagedProcesses = {
    .label = "staged_processes", .transport = "staged", .place = Place::kProcess};
constexpr Trial kFake = {.label = "fake", .transport = "fake"};
constexpr Trial kFakeByProgress = {
    .label = "fake_by_progress", .transport = "fake", .fake = {.target_executes = false}};
constexpr Trial kFakeReordering = {
    .label = "fake_reordering",
    .transport = "fake",
    .fake = {.queue_capacity = 16, .eager_bytes = 0, .reorder_seed = 7}};

const auto kAll =
    ::testing::Values(kSelf, kShmThreads, kShmProcesses, kCmaThreads, kCmaProcesses, kStagedThreads,
                      kStagedProcesses, kFake, kFakeByProgress, kFakeReordering);
const auto kWithControl =
    ::testing::Values(kSelf, kShmThreads, kShmProcesses, kFake, kFakeByProgress, kFakeReordering);

std::string label_of(const ::testing::TestParamInfo<Trial>& trial) {
  return std::string(trial.param.label);
}

INSTANTIATE_TEST_SUITE_P(Transport, DataClaims, kAll, label_of);
INSTANTIATE_TEST_SUITE_P(Transport, PostClaims, kAll, label_of);
INSTANTIATE_TEST_SUITE_P(Transport, AccumulateClaims, kAll, label_of);
INSTANTIATE_TEST_SUITE_P(Transport, ControlClaims, kWithControl, label_of);

}  // namespace

void PrintTo(const Trial& trial, std::ostream* out) { *out << trial.label; }

}  // namespace hixl_rma::testing

// SPDX-License-Identifier: Apache-2.0
//
// What an endpoint answers for the optional verbs it does not have.
#include "hixl_rma/transport.h"

namespace hixl_rma {
namespace {

Status unsupported(const char* verb) {
  return Status::error(StatusCode::kUnsupported, std::string("this transport has no ") + verb);
}

}  // namespace

PostResult Endpoint::notify(RemoteRegion&, std::span<const RecordWrite>, Completion*) {
  return unsupported("notify");
}

PostResult Endpoint::fetch_add(RemoteRegion&, std::uint64_t, std::uint64_t, std::uint64_t*,
                               Completion*) {
  return unsupported("fetch_add");
}

PostResult Endpoint::compare_swap(RemoteRegion&, std::uint64_t, std::uint64_t, std::uint64_t,
                                  std::uint64_t*, Completion*) {
  return unsupported("compare_swap");
}

PostResult Endpoint::accumulate(RemoteRegion&, const Accumulate&, Completion*) {
  return unsupported("accumulate");
}

PostResult Endpoint::swap_element(RemoteRegion&, const ElementSwap&, Completion*) {
  return unsupported("compare_and_swap");
}

}  // namespace hixl_rma

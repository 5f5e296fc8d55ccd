// SPDX-License-Identifier: Apache-2.0
#include "transport/common/host_reach.h"

#include <string>

#include "base/wire.h"

namespace hixl_rma {
namespace {

constexpr std::uint32_t kWireVersion = 1;

Status unavailable(std::string text) {
  return Status::error(StatusCode::kUnavailable, std::move(text));
}

}  // namespace

Bytes host_address(const ProcessFacts& facts) {
  return WireWriter()
      .number(kWireVersion)
      .text(facts.boot_id)
      .number(facts.net_namespace)
      .number(facts.uid)
      .take();
}

Status host_reach(const ProcessFacts& facts, ByteSpan peer_address, std::string_view transport) {
  WireReader reader(peer_address);
  const auto version = reader.number<std::uint32_t>();
  const std::string boot_id = reader.text();
  const auto net_namespace = reader.number<std::uint64_t>();
  const auto uid = reader.number<std::uint64_t>();
  if (!reader.finished() || version != kWireVersion) {
    return unavailable("the peer speaks another version of " + std::string(transport));
  }
  if (boot_id != facts.boot_id) return unavailable("the peer runs on another host");
  if (net_namespace != facts.net_namespace) {
    return unavailable("the peer lives in another network namespace");
  }
  if (uid != facts.uid) return unavailable("the peer belongs to another user");
  return {};
}

}  // namespace hixl_rma

// SPDX-License-Identifier: Apache-2.0
#include "base/abstract_socket.h"

#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/random.h"

namespace hixl_rma {

AbstractAddress::AbstractAddress(const std::string& name) {
  value.sun_family = AF_UNIX;
  std::memcpy(value.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool is_socket_name(const std::string& name) {
  return !name.empty() && name.size() < sizeof(sockaddr_un::sun_path) - 1;
}

std::string random_socket_name() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name = "hixl_rma.";
  for (const std::byte byte : random_token()) {
    name += kDigits[static_cast<unsigned>(byte) >> 4];
    name += kDigits[static_cast<unsigned>(byte) & 15];
  }
  return name;
}

}  // namespace hixl_rma

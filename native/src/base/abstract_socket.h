// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace hixl_rma {

/// An abstract Unix address: no file, gone with its last descriptor (unix(7)).
struct AbstractAddress {
  sockaddr_un value{};
  socklen_t length = 0;

  /// The name must be shorter than sun_path.
  explicit AbstractAddress(const std::string& name);
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};

/// Whether a name that a peer sent can be an address.
bool is_socket_name(const std::string& name);

/// "hixl_rma." and 16 random bytes.
std::string random_socket_name();

}  // namespace hixl_rma

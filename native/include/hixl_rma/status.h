// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hixl_rma {

/// What went wrong, one code for each Python exception class.
enum class StatusCode : std::uint8_t {
  kOk,
  kInvalidArgument,
  kInvalidType,
  kReadOnly,
  kOutOfRange,
  kNotRegistered,
  kAccessDenied,
  kStale,
  kWrongEpoch,
  kUnsupported,
  kResourceExhausted,
  kBusy,
  kTimeout,
  kNotifyTimeout,
  kUnavailable,
  kNotConnected,
  kTransferFailed,
  kPeerLost,
  kCanceled,
  kClosed,
  kForked,
  kProtocolMismatch,
  kAuthFailed,
  kBootstrap,
  kInternal,
};

/// Name without the leading k, as the Python side spells it ("PeerLost").
std::string_view name_of(StatusCode code);

/// An error as a value: copyable, cheap when there is none (one null pointer test), safe to hand to
/// another thread. Nothing below the bindings throws.
class [[nodiscard]] Status {
 public:
  struct Detail {
    StatusCode code = StatusCode::kOk;
    std::string text;
    std::string operation;
    std::string transport;
    int peer_rank = -1;
    int errno_value = 0;
    /// Unavailable: each transport and why it was not taken.
    std::vector<std::pair<std::string, std::string>> reasons;
  };

  Status() = default;

  static Status error(StatusCode code, std::string text);
  /// Unavailable, with a reason for each transport.
  static Status unavailable(std::string text,
                            std::vector<std::pair<std::string, std::string>> reasons);
  /// An error of a system call; whoever shows it adds what errno says.
  static Status from_errno(StatusCode code, std::string text, int errno_value);

  [[nodiscard]] bool ok() const { return detail_ == nullptr; }
  [[nodiscard]] StatusCode code() const { return detail_ ? detail_->code : StatusCode::kOk; }
  /// Undefined when ok().
  [[nodiscard]] const Detail& detail() const { return *detail_; }
  [[nodiscard]] std::string_view text() const {
    return detail_ ? std::string_view(detail_->text) : std::string_view("ok");
  }

  // Each returns a copy with one more fact; a fact that is known already stays.
  [[nodiscard]] Status with_operation(std::string_view operation) const;
  [[nodiscard]] Status with_transport(std::string_view transport) const;
  [[nodiscard]] Status with_peer(int rank) const;

 private:
  std::shared_ptr<const Detail> detail_;
};

/// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  // NOLINTBEGIN(bugprone-unchecked-optional-access): callers look at ok() first
  [[nodiscard]] T& value() { return *value_; }
  [[nodiscard]] const T& value() const { return *value_; }
  [[nodiscard]] T take() { return std::move(*value_); }
  // NOLINTEND(bugprone-unchecked-optional-access)

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace hixl_rma

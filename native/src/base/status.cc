// SPDX-License-Identifier: Apache-2.0
#include "hixl_rma/status.h"

#include <array>
#include <cstddef>

namespace hixl_rma {
namespace {

constexpr std::array<std::string_view, 25> kNames = {"Ok",
                                                     "InvalidArgument",
                                                     "InvalidType",
                                                     "ReadOnly",
                                                     "OutOfRange",
                                                     "NotRegistered",
                                                     "AccessDenied",
                                                     "Stale",
                                                     "WrongEpoch",
                                                     "Unsupported",
                                                     "ResourceExhausted",
                                                     "Busy",
                                                     "Timeout",
                                                     "NotifyTimeout",
                                                     "Unavailable",
                                                     "NotConnected",
                                                     "TransferFailed",
                                                     "PeerLost",
                                                     "Canceled",
                                                     "Closed",
                                                     "Forked",
                                                     "ProtocolMismatch",
                                                     "AuthFailed",
                                                     "Bootstrap",
                                                     "Internal"};
static_assert(kNames.size() == static_cast<std::size_t>(StatusCode::kInternal) + 1);

}  // namespace

std::string_view name_of(StatusCode code) { return kNames.at(static_cast<std::size_t>(code)); }

Status Status::error(StatusCode code, std::string text) {
  auto detail = std::make_shared<Detail>();
  detail->code = code;
  detail->text = std::move(text);
  Status status;
  status.detail_ = std::move(detail);
  return status;
}

Status Status::unavailable(std::string text,
                           std::vector<std::pair<std::string, std::string>> reasons) {
  auto detail = std::make_shared<Detail>();
  detail->code = StatusCode::kUnavailable;
  detail->text = std::move(text);
  detail->reasons = std::move(reasons);
  Status status;
  status.detail_ = std::move(detail);
  return status;
}

Status Status::from_errno(StatusCode code, std::string text, int errno_value) {
  auto detail = std::make_shared<Detail>();
  detail->code = code;
  detail->text = std::move(text);
  detail->errno_value = errno_value;
  Status status;
  status.detail_ = std::move(detail);
  return status;
}

Status Status::with_operation(std::string_view operation) const {
  if (ok() || !detail_->operation.empty()) return *this;
  auto copy = std::make_shared<Detail>(*detail_);
  copy->operation = operation;
  Status status;
  status.detail_ = std::move(copy);
  return status;
}

Status Status::with_transport(std::string_view transport) const {
  if (ok() || !detail_->transport.empty()) return *this;
  auto copy = std::make_shared<Detail>(*detail_);
  copy->transport = transport;
  Status status;
  status.detail_ = std::move(copy);
  return status;
}

Status Status::with_peer(int rank) const {
  if (ok() || detail_->peer_rank >= 0) return *this;
  auto copy = std::make_shared<Detail>(*detail_);
  copy->peer_rank = rank;
  Status status;
  status.detail_ = std::move(copy);
  return status;
}

}  // namespace hixl_rma

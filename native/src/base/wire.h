// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "hixl_rma/memory.h"

namespace hixl_rma {

/// Writes fixed little-endian fields. No C++ struct is ever copied onto the wire.
class WireWriter {
 public:
  template <class T>
  WireWriter& number(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xff));
    }
    return *this;
  }

  /// A length of 32 bits, then the bytes.
  WireWriter& bytes(ByteSpan data) {
    number(static_cast<std::uint32_t>(data.size()));
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    return *this;
  }

  WireWriter& text(std::string_view data) { return bytes(std::as_bytes(std::span(data))); }

  [[nodiscard]] Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Reads what WireWriter wrote. After the first short or oversized field every read gives nothing
/// and ok() is false; lengths are checked before use.
class WireReader {
 public:
  explicit WireReader(ByteSpan data) : data_(data) {}

  template <class T>
  T number() {
    static_assert(std::is_unsigned_v<T>);
    if (!take(sizeof(T))) return 0;
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(data_[at_ + i]) << (8 * i)));
    }
    at_ += sizeof(T);
    return value;
  }

  ByteSpan bytes() {
    const std::size_t length = number<std::uint32_t>();
    if (!take(length)) return {};
    ByteSpan view = data_.subspan(at_, length);
    at_ += length;
    return view;
  }

  std::string text() {
    const ByteSpan view = bytes();
    return {reinterpret_cast<const char*>(view.data()), view.size()};
  }

  [[nodiscard]] bool ok() const { return ok_; }
  /// Everything was read and nothing is left.
  [[nodiscard]] bool finished() const { return ok_ && at_ == data_.size(); }

 private:
  bool take(std::size_t length) {
    ok_ = ok_ && length <= data_.size() - at_;
    return ok_;
  }

  ByteSpan data_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace hixl_rma

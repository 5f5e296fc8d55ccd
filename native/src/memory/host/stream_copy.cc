// SPDX-License-Identifier: Apache-2.0
#include "memory/host/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hixl_rma {
namespace {

constexpr std::size_t kLine = 64;

/// Streams whole cache lines to an aligned destination.
using LineCopy = void (*)(std::byte* to, const std::byte* from, std::size_t lines);

struct StreamCopy {
  const char* name;
  LineCopy lines;
};

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void lines_avx512(std::byte* to, const std::byte* from,
                                                     std::size_t lines) {
  for (; lines >= 4; lines -= 4, to += 4 * kLine, from += 4 * kLine) {
    const __m512i a = _mm512_loadu_si512(from);
    const __m512i b = _mm512_loadu_si512(from + kLine);
    const __m512i c = _mm512_loadu_si512(from + 2 * kLine);
    const __m512i d = _mm512_loadu_si512(from + 3 * kLine);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + kLine), b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 2 * kLine), c);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 3 * kLine), d);
  }
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
  _mm_sfence();
}

__attribute__((target("avx2"))) void lines_avx2(std::byte* to, const std::byte* from,
                                                std::size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), b);
  }
  _mm_sfence();
}

void lines_sse2(std::byte* to, const std::byte* from, std::size_t lines) {
  for (std::size_t n = lines * kLine / 16; n > 0; --n, to += 16, from += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  _mm_sfence();
}

StreamCopy choose() {
  if (__builtin_cpu_supports("avx512f") != 0) return {"avx512", lines_avx512};
  if (__builtin_cpu_supports("avx2") != 0) return {"avx2", lines_avx2};
  return {"sse2", lines_sse2};
}

#elif defined(__aarch64__)

void lines_neon(std::byte* to, const std::byte* from, std::size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    asm volatile(
        "ldp q0, q1, [%1]\n\t"
        "ldp q2, q3, [%1, #32]\n\t"
        "stnp q0, q1, [%0]\n\t"
        "stnp q2, q3, [%0, #32]"
        :
        : "r"(to), "r"(from)
        : "v0", "v1", "v2", "v3", "memory");
  }
  // Non-temporal stores may be seen late even after a store-release: Arm asks for a barrier.
  asm volatile("dmb ishst" ::: "memory");
}

StreamCopy choose() { return {"neon", lines_neon}; }

#else

void lines_plain(std::byte* to, const std::byte* from, std::size_t lines) {
  std::memcpy(to, from, lines * kLine);
}

StreamCopy choose() { return {"none", lines_plain}; }

#endif

const StreamCopy& chosen() {
  static const StreamCopy kChosen = choose();
  return kChosen;
}

}  // namespace

const char* stream_copy_name() { return chosen().name; }

void stream_copy(std::byte* to, const std::byte* from, std::size_t nbytes) {
  const std::size_t head =
      std::min(nbytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  if (head != 0) std::memcpy(to, from, head);
  const std::size_t lines = (nbytes - head) / kLine;
  chosen().lines(to + head, from + head, lines);
  const std::size_t done = head + lines * kLine;
  if (done < nbytes) std::memcpy(to + done, from + done, nbytes - done);
}

}  // namespace hixl_rma

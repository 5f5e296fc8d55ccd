// SPDX-License-Identifier: Apache-2.0
#include "memory/host/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>

#include "memory/host/available_memory.h"
#include "memory/host/present_pages.h"

namespace hixl_rma {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status exhausted(const char* what, std::size_t nbytes, int error) {
  return Status::from_errno(
             StatusCode::kResourceExhausted,
             std::string(what) + " " + std::to_string(nbytes) + " bytes of shared memory failed",
             error)
      .with_operation("allocate");
}

// Through the mapping, which gets huge pages where the system gives them to who asks; older kernels
// reserve in the file.
int reserve_step(int fd, std::byte* data, std::size_t offset, std::size_t length) {
  const int error = make_present(data + offset, length);
  if (error != EINVAL) return error;
  return posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(length));
}

// A memfd has no size limit of its own: asked for more than there is, the kernel would rather kill
// processes than refuse. So the rest is compared with what is available before every step, which
// also sees what other ranks of this host reserve at the same time; a sixteenth is left to the
// host.
Status reserve(int fd, std::byte* data, std::size_t offset, std::size_t length) {
  constexpr std::size_t kStep = std::size_t{256} << 20;
  while (length > 0) {
    const std::uint64_t available = available_memory();
    if (length > available - available / 16) return exhausted("reserving", length, ENOMEM);
    const std::size_t step = std::min(length, kStep);
    if (const int error = reserve_step(fd, data, offset, step); error != 0) {
      return exhausted("reserving", length, error);
    }
    offset += step;
    length -= step;
  }
  return {};
}

Result<std::byte*> map_pages(int fd, std::size_t offset, std::size_t nbytes) {
  void* address =
      mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return exhausted("mapping", nbytes, errno);
  return static_cast<std::byte*>(address);
}

}  // namespace

std::size_t round_to_pages(std::size_t nbytes) {
  static const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (nbytes + kPage - 1) / kPage * kPage;
}

Result<std::shared_ptr<SharedSegment>> SharedSegment::create(std::size_t nbytes,
                                                             std::span<const Range> reserved) {
  if (nbytes == 0 || nbytes > (std::size_t{1} << 62)) {
    return Status::error(StatusCode::kResourceExhausted,
                         "a shared segment cannot have " + std::to_string(nbytes) + " bytes");
  }
  nbytes = round_to_pages(nbytes);
  Descriptor descriptor(memfd_create("hixl_rma", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor.valid()) {
    return Status::from_errno(StatusCode::kResourceExhausted, "memfd_create failed", errno);
  }
  if (ftruncate(descriptor.get(), static_cast<off_t>(nbytes)) != 0) {
    return exhausted("sizing", nbytes, errno);
  }
  if (fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0) {
    return Status::from_errno(StatusCode::kInternal, "sealing a memfd failed", errno);
  }
  auto address = map_pages(descriptor.get(), 0, nbytes);
  if (!address.ok()) return address.status();
  std::shared_ptr<SharedSegment> segment(
      new SharedSegment(address.value(), nbytes, std::move(descriptor)));
  for (const auto& [offset, length] : reserved) {
    const std::size_t first = offset - offset % round_to_pages(1);
    const std::size_t whole = round_to_pages(offset + length) - first;
    ask_for_huge_pages(segment->data() + first, whole);
    Status status = reserve(segment->fd(), segment->data(), first, whole);
    if (!status.ok()) return status;
  }
  return segment;
}

Result<std::shared_ptr<SharedSegment>> SharedSegment::map(int fd, std::size_t offset,
                                                          std::size_t nbytes) {
  struct stat facts{};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd, &facts) != 0) {
    return Status::error(StatusCode::kProtocolMismatch,
                         "the peer handed over a descriptor that is no sealed memfd");
  }
  if (nbytes == 0 || !in_range(offset, nbytes, static_cast<std::uint64_t>(facts.st_size))) {
    return Status::error(StatusCode::kProtocolMismatch,
                         "the peer's segment is smaller than it announced");
  }
  auto address = map_pages(fd, offset, nbytes);
  if (!address.ok()) return address.status();
  return std::shared_ptr<SharedSegment>(new SharedSegment(address.value(), nbytes, Descriptor()));
}

SharedSegment::~SharedSegment() { munmap(data_, nbytes_); }

}  // namespace hixl_rma

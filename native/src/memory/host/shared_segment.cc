// SPDX-License-Identifier: Apache-2.0
#include "memory/host/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

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
  for (const auto& [offset, length] : reserved) {
    if (length == 0) continue;
    const int error =
        posix_fallocate(descriptor.get(), static_cast<off_t>(offset), static_cast<off_t>(length));
    if (error != 0) return exhausted("reserving", length, error);
  }
  if (fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0) {
    return Status::from_errno(StatusCode::kInternal, "sealing a memfd failed", errno);
  }
  auto address = map_pages(descriptor.get(), 0, nbytes);
  if (!address.ok()) return address.status();
  return std::shared_ptr<SharedSegment>(
      new SharedSegment(address.value(), nbytes, std::move(descriptor)));
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

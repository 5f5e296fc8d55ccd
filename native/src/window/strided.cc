// SPDX-License-Identifier: Apache-2.0
#include "window/strided.h"

namespace hixl_rma {

StridedRuns::StridedRuns(std::size_t nbytes)
    : run_(nbytes),
      total_(nbytes),
      highest_(static_cast<std::ptrdiff_t>(nbytes)),
      finished_(nbytes == 0) {}

StridedRuns::StridedRuns(std::size_t itemsize, std::span<const std::ptrdiff_t> shape,
                         std::span<const std::ptrdiff_t> strides)
    : run_(itemsize), total_(itemsize) {
  highest_ = static_cast<std::ptrdiff_t>(itemsize);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    total_ *= static_cast<std::size_t>(shape[i]);
    const std::ptrdiff_t reach = (shape[i] - 1) * strides[i];
    (reach < 0 ? lowest_ : highest_) += reach;
  }
  if (total_ == 0) {
    lowest_ = highest_ = 0;
    finished_ = true;
    return;
  }
  // From the innermost dimension outwards: what continues the run belongs to it.
  std::size_t inner = shape.size();
  while (inner > 0 &&
         (shape[inner - 1] == 1 || strides[inner - 1] == static_cast<std::ptrdiff_t>(run_))) {
    run_ *= static_cast<std::size_t>(shape[inner - 1]);
    --inner;
  }
  for (std::size_t i = 0; i < inner; ++i) {
    if (shape[i] == 1) continue;
    shape_[dimensions_] = shape[i];
    strides_[dimensions_] = strides[i];
    index_[dimensions_] = 0;
    ++dimensions_;
  }
}

void StridedRuns::advance(std::size_t n) {
  consumed_ += n;
  if (consumed_ == run_) next_run();
}

void StridedRuns::next_run() {
  consumed_ = 0;
  for (std::size_t i = dimensions_; i-- > 0;) {
    at_ += strides_[i];
    if (++index_[i] < shape_[i]) return;
    at_ -= shape_[i] * strides_[i];
    index_[i] = 0;
  }
  finished_ = true;
}

}  // namespace hixl_rma

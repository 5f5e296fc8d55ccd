# SPDX-License-Identifier: Apache-2.0
# Cross-compile for aarch64 Linux with Debian's g++-aarch64-linux-gnu and run the results under qemu's user emulation.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc) # GoogleTest's sources ask for one
# GCC 12 sees an overflow in the growth of every std::vector<std::byte>.
set(CMAKE_CXX_FLAGS_INIT -Wno-stringop-overflow)

set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

find_program(HIXL_RMA_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(HIXL_RMA_QEMU)
  # The emulated programs load the C and C++ libraries that the cross compiler brings.
  set(CMAKE_CROSSCOMPILING_EMULATOR "${HIXL_RMA_QEMU};-L;/usr/aarch64-linux-gnu")
endif()

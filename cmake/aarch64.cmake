# SPDX-License-Identifier: Apache-2.0
# Cross build for aarch64 with Debian's compiler; the libraries are those that `scripts/deps arm64`
# unpacks into build/deps/arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../build/deps/arm64 ABSOLUTE)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/aarch64-linux-gnu/pkgconfig:${root}/usr/share/pkgconfig)
set(CMAKE_C_FLAGS_INIT "-isystem ${root}/usr/include/aarch64-linux-gnu") # parts of libssl-dev
set(CMAKE_EXE_LINKER_FLAGS_INIT
    "-Wl,-rpath-link,${root}/usr/lib/aarch64-linux-gnu -Wl,-rpath-link,${root}/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")
set(CMAKE_FIND_ROOT_PATH ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)

# SPDX-License-Identifier: Apache-2.0
# Libraries from packages (docs/dependencies.md says why each). yyjson comes from the system where it
# is packaged, else from the pinned source that scripts/deps unpacks into build/deps/yyjson.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(LIBDEFLATE REQUIRED IMPORTED_TARGET libdeflate)
pkg_check_modules(LIBCRYPTO REQUIRED IMPORTED_TARGET libcrypto>=3.0)
pkg_check_modules(XXHASH REQUIRED libxxhash) # its header alone: nothing is linked
pkg_check_modules(LIBURING IMPORTED_TARGET liburing>=2.2) # without it threads read experts

add_library(caisson_deps INTERFACE)
target_link_libraries(caisson_deps INTERFACE PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::LIBCRYPTO
                      PkgConfig::LIBDEFLATE Threads::Threads m)
target_include_directories(caisson_deps SYSTEM INTERFACE ${XXHASH_INCLUDE_DIRS})
if(LIBURING_FOUND)
    target_link_libraries(caisson_deps INTERFACE PkgConfig::LIBURING)
    target_compile_definitions(caisson_deps INTERFACE CSN_HAVE_LIBURING)
endif()

pkg_check_modules(YYJSON QUIET IMPORTED_TARGET yyjson)
if(YYJSON_FOUND)
    target_link_libraries(caisson_deps INTERFACE PkgConfig::YYJSON)
else()
    set(CAISSON_YYJSON_DIR ${CMAKE_SOURCE_DIR}/build/deps/yyjson CACHE PATH "yyjson.c and yyjson.h")
    if(NOT EXISTS ${CAISSON_YYJSON_DIR}/yyjson.c)
        message(FATAL_ERROR "yyjson is neither installed nor in ${CAISSON_YYJSON_DIR}: run scripts/deps")
    endif()
    add_library(caisson_yyjson OBJECT ${CAISSON_YYJSON_DIR}/yyjson.c)
    target_include_directories(caisson_yyjson SYSTEM PUBLIC ${CAISSON_YYJSON_DIR})
    # Its functions are ours alone: hidden in the shared library, local in the static one. Only its
    # reader is used.
    target_compile_definitions(caisson_yyjson PUBLIC "yyjson_api=" YYJSON_DISABLE_WRITER
        YYJSON_DISABLE_NON_STANDARD YYJSON_DISABLE_UTILS YYJSON_DISABLE_INCR_READER)
    target_compile_options(caisson_yyjson PRIVATE -ffunction-sections -fdata-sections)
    list(APPEND CAISSON_EXTRA_OBJECTS $<TARGET_OBJECTS:caisson_yyjson>)
    target_include_directories(caisson_deps SYSTEM INTERFACE ${CAISSON_YYJSON_DIR})
    target_compile_definitions(caisson_deps INTERFACE "yyjson_api=")
endif()

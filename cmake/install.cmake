# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts under the prefix: headers, both libraries, the tool with its man pages
# and completions, caisson.pc and the CMake package (targets caisson::caisson and caisson::static).
include(CMakePackageConfigHelpers)

install(DIRECTORY include/caisson DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(EXISTS ${CMAKE_SOURCE_DIR}/include/caisson.h)
    install(FILES include/caisson.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(TARGETS caisson_shared caisson_archive EXPORT caisson
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(NOT YYJSON_FOUND AND EXISTS ${CAISSON_YYJSON_DIR}/LICENSE)
    install(FILES ${CAISSON_YYJSON_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME LICENSE.yyjson)
endif()

# xxHash is compiled in from its header, at whose head its licence stands.
find_file(CAISSON_XXHASH_H xxhash.h HINTS ${XXHASH_INCLUDEDIR} REQUIRED)
file(READ ${CAISSON_XXHASH_H} xxhash_text LIMIT 8192)
string(FIND "${xxhash_text}" "*/" xxhash_end)
string(SUBSTRING "${xxhash_text}" 0 ${xxhash_end} xxhash_text)
file(WRITE ${CMAKE_BINARY_DIR}/LICENSE.xxhash "${xxhash_text}*/\n")
install(FILES ${CMAKE_BINARY_DIR}/LICENSE.xxhash DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Caisson)
install(EXPORT caisson NAMESPACE caisson:: FILE CaissonTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/CaissonConfig.cmake.in
    ${CMAKE_BINARY_DIR}/CaissonConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/CaissonConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/CaissonConfig.cmake ${CMAKE_BINARY_DIR}/CaissonConfigVersion.cmake
    DESTINATION ${package_dir})

set(CAISSON_PC_REQUIRES "libpcre2-8 libutf8proc libcrypto libdeflate")
if(YYJSON_FOUND)
    string(APPEND CAISSON_PC_REQUIRES " yyjson")
endif()
if(LIBURING_FOUND)
    string(APPEND CAISSON_PC_REQUIRES " liburing")
endif()
# Relative to the file itself: the prefix may be chosen at `cmake --install`.
string(REGEX REPLACE "[^/]+" ".." CAISSON_PC_UP "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
configure_file(cmake/caisson.pc.in ${CMAKE_BINARY_DIR}/caisson.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/caisson.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET caisson)
    install(TARGETS caisson RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# ---- man pages and completions, printed by the tool itself ----
if(TARGET caisson AND NOT CMAKE_CROSSCOMPILING AND NOT CAISSON_SANITIZE
   AND EXISTS ${CMAKE_SOURCE_DIR}/cli/cmd_man.c)
    file(GLOB commands RELATIVE ${CMAKE_SOURCE_DIR}/cli CONFIGURE_DEPENDS cli/cmd_*.c)
    list(TRANSFORM commands REPLACE "^cmd_(.*)\\.c$" "\\1")
    set(pages ${CMAKE_BINARY_DIR}/man/caisson.1)
    set(print_pages COMMAND caisson man > ${CMAKE_BINARY_DIR}/man/caisson.1)
    foreach(command ${commands})
        list(APPEND pages ${CMAKE_BINARY_DIR}/man/caisson-${command}.1)
        list(APPEND print_pages COMMAND caisson man ${command} > ${CMAKE_BINARY_DIR}/man/caisson-${command}.1)
    endforeach()
    set(completions)
    set(print_completions)
    foreach(shell bash zsh fish)
        list(APPEND completions ${CMAKE_BINARY_DIR}/man/caisson.${shell})
        list(APPEND print_completions COMMAND caisson completion ${shell} > ${CMAKE_BINARY_DIR}/man/caisson.${shell})
    endforeach()
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/man)
    add_custom_command(OUTPUT ${pages} ${completions} ${print_pages} ${print_completions}
        DEPENDS caisson VERBATIM COMMENT "Printing man pages and completions")
    add_custom_target(caisson_pages ALL DEPENDS ${pages} ${completions})
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${CMAKE_BINARY_DIR}/man/caisson.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME caisson)
    install(FILES ${CMAKE_BINARY_DIR}/man/caisson.zsh
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _caisson)
    install(FILES ${CMAKE_BINARY_DIR}/man/caisson.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

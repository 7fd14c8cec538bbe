# SPDX-License-Identifier: Apache-2.0
# The two libraries that are installed. Both show caisson_* and nothing else.
#
# Hidden symbols stay global inside a static archive, so two libraries with a csn_arena_reset (or two
# copies of yyjson) in one program would clash. The archive therefore holds one object, linked from
# all of ours, in which every hidden symbol was made local.
add_library(caisson_shared SHARED $<TARGET_OBJECTS:caisson_objects> ${CAISSON_EXTRA_OBJECTS})
target_link_libraries(caisson_shared PRIVATE $<BUILD_INTERFACE:caisson_deps>)
target_link_options(caisson_shared PRIVATE -Wl,--gc-sections -Wl,-O1)
if(NOT CAISSON_SANITIZE)
    target_link_options(caisson_shared PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(caisson_shared PROPERTIES
    OUTPUT_NAME caisson EXPORT_NAME caisson VERSION ${PROJECT_VERSION} SOVERSION 0)
target_include_directories(caisson_shared PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

if(CMAKE_OBJCOPY AND NOT CAISSON_SANITIZE)
    set(object ${CMAKE_BINARY_DIR}/libcaisson-public.o)
    set(target_flag "")
    if(CMAKE_C_COMPILER_ID MATCHES Clang AND CMAKE_C_COMPILER_TARGET)
        set(target_flag --target=${CMAKE_C_COMPILER_TARGET})
    endif()
    add_custom_command(OUTPUT ${object}
        COMMAND ${CMAKE_C_COMPILER} ${target_flag} -r -nostdlib -o ${object}
                $<TARGET_OBJECTS:caisson_objects> ${CAISSON_EXTRA_OBJECTS}
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${object}
        DEPENDS $<TARGET_OBJECTS:caisson_objects> ${CAISSON_EXTRA_OBJECTS}
        COMMAND_EXPAND_LISTS VERBATIM COMMENT "Making the internal symbols local")
    set_source_files_properties(${object} PROPERTIES GENERATED TRUE EXTERNAL_OBJECT TRUE)
    add_library(caisson_archive STATIC ${object})
else()
    add_library(caisson_archive STATIC $<TARGET_OBJECTS:caisson_objects> ${CAISSON_EXTRA_OBJECTS})
endif()
set_target_properties(caisson_archive PROPERTIES
    OUTPUT_NAME caisson EXPORT_NAME static LINKER_LANGUAGE C)
target_include_directories(caisson_archive PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(caisson_archive INTERFACE
    $<BUILD_INTERFACE:caisson_deps>
    "$<INSTALL_INTERFACE:Threads::Threads;pcre2-8;utf8proc;crypto;deflate;$<$<BOOL:${YYJSON_FOUND}>:yyjson>;$<$<BOOL:${LIBURING_FOUND}>:uring>;m>")

add_library(caisson::caisson ALIAS caisson_shared)
add_library(caisson::static ALIAS caisson_archive)

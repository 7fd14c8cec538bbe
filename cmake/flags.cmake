# SPDX-License-Identifier: Apache-2.0
# Compile flags that every target shares. -ffp-contract=off is part of the product: the same bits on
# every compiler (docs/architecture.md, "Same bits").
add_library(caisson_flags INTERFACE)
target_compile_options(caisson_flags INTERFACE
    -ffp-contract=off -fno-math-errno
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
    -Wwrite-strings -Wundef -Wdouble-promotion)
target_compile_definitions(caisson_flags INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64)
if(CAISSON_WERROR)
    target_compile_options(caisson_flags INTERFACE -Werror)
endif()
if(CAISSON_SANITIZE)
    target_compile_options(caisson_flags INTERFACE
        -fsanitize=${CAISSON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    # The address sanitizer stops at these by itself, and gcc takes a fifth longer over the kernels.
    target_compile_options(caisson_flags INTERFACE
        $<$<C_COMPILER_ID:GNU>:-fno-sanitize=null,object-size>)
    target_link_options(caisson_flags INTERFACE -fsanitize=${CAISSON_SANITIZE})
endif()

# kernels/x86/matmul_i8_q8_avx2.c is compiled with AVX2, and only that file. _avx512 is F, BW, DQ, VL
# and VNNI, _vbmi those and VBMI.
function(caisson_isa_flags)
    foreach(file ${ARGN})
        set(wide)
        if(file MATCHES "_(avx2|avx512|vbmi)\\.c$")
            set(wide -mavx2 -mfma -mf16c -mbmi)
        endif()
        if(file MATCHES "_(avx512|vbmi)\\.c$")
            list(APPEND wide -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
        endif()
        if(file MATCHES "_vbmi\\.c$")
            list(APPEND wide -mavx512vbmi)
        elseif(file MATCHES "_fma\\.c$")
            list(APPEND wide -mfma)
        elseif(file MATCHES "_dotprod\\.c$")
            list(APPEND wide -march=armv8.2-a+dotprod)
        endif()
        if(CAISSON_FUZZ AND file MATCHES "_(avx2|avx512|vbmi)\\.c$")
            # clang takes five times as long over unrolled code with checks in line (with calls
            # tests would take as much longer), and again with those of undefined behaviour; at
            # -O1 it does not unroll all that it is asked to
            list(APPEND wide -Wno-pass-failed -fno-sanitize=undefined
                 -mllvm -asan-instrumentation-with-call-threshold=0)
        endif()
        set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS ${wide})
    endforeach()
endfunction()

# Where ccache is installed, builds use it. Paths are hashed as seen from the source folder, so that
# what one checkout has compiled another finds.
find_program(RINGSIDE_CCACHE ccache)
if(RINGSIDE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Its arguments of two files whose whole paths ccache would keep: the header that is precompiled,
    # for which there is a sum, and the sanitizers' list, which is hashed as a file.
    set(of_clang "CCACHE_IGNOREOPTIONS=-Xclang -fsanitize-ignorelist=*" CCACHE_PCH_EXTSUM=1
                 CCACHE_EXTRAFILES=${CMAKE_SOURCE_DIR}/tests/support/sanitizers_ignore.txt)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      # Precompiled headers need the first; a fresh checkout's files are as new as the build.
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_ctime,include_file_mtime
      ${of_clang} ${RINGSIDE_CCACHE})
endif()

# ringside_precompiled_sum(TARGET): what ccache hashes instead of Clang's precompiled header of this
# target, which has the folder's path in it: what it is made of, headers of packages alone.
function(ringside_precompiled_sum target)
  if(RINGSIDE_CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    execute_process(COMMAND dpkg-query --show libc6-dev libstdc++-12-dev libabsl-dev libcli11-dev
                            libgmock-dev libgtest-dev nlohmann-json3-dev
                    OUTPUT_VARIABLE packages ERROR_QUIET RESULT_VARIABLE failed)
    if(failed)
      return()  # then it is hashed as it is
    endif()
    get_target_property(headers ${target} PRECOMPILE_HEADERS)
    get_target_property(folder ${target} BINARY_DIR)
    file(WRITE ${folder}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch.sum "${headers}\n${packages}")
  endif()
endfunction()

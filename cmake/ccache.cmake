# Where ccache is installed, builds use it. Paths are hashed as seen from the source folder, so that
# what one checkout has compiled another finds.
find_program(RINGSIDE_CCACHE ccache)
if(RINGSIDE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      # Precompiled headers need the first; a fresh checkout's files are as new as the build.
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_ctime,include_file_mtime
      ${RINGSIDE_CCACHE})
endif()

# What embedders get: the folders' objects as one static and one shared library, the public headers,
# and what finds them (find_package(ringside), pkg-config). docs/embedding.md shows its use.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(embedded ${RINGSIDE_FOLDERS})
list(REMOVE_ITEM embedded advice command)
list(TRANSFORM embedded REPLACE "(.+)" "$<TARGET_OBJECTS:ringside_\\1>" OUTPUT_VARIABLE objects)
# What Ringside's code needs of Abseil, and of that what its headers use.
set(used_abseil status statusor strings str_format time cleanup)
set(shown_abseil status statusor time)

add_library(ringside_archive STATIC ${objects})
add_library(ringside::ringside ALIAS ringside_archive)
# The static liburing, in the shared library too: Debian's shared one (2.3) lacks two functions.
target_link_libraries(ringside_archive INTERFACE -l:liburing.a Threads::Threads)
foreach(name ${used_abseil})
  target_link_libraries(ringside_archive INTERFACE absl::${name})
endforeach()
set(libraries ringside_archive)

# A sanitizer's run-time library would have to be in whatever loads it.
if(NOT RINGSIDE_SANITIZE AND NOT RINGSIDE_FUZZ)
  add_library(ringside_shared SHARED ${objects})
  add_library(ringside::ringside_shared ALIAS ringside_shared)
  # Debian's static Abseil is not position-independent. Of the shared ones those that are needed.
  target_link_libraries(ringside_shared PRIVATE ${RINGSIDE_SHARED_ABSEIL} ${URING} Threads::Threads)
  target_link_options(ringside_shared PRIVATE
    -Wl,--as-needed -Wl,--no-undefined
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/ringside.map)
  set_target_properties(ringside_shared PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/ringside.map)
  foreach(name ${shown_abseil})
    target_link_libraries(ringside_shared INTERFACE absl::${name})
  endforeach()
  list(APPEND libraries ringside_shared)
endif()

set_target_properties(ringside_archive PROPERTIES EXPORT_NAME ringside)
set_target_properties(${libraries} PROPERTIES OUTPUT_NAME ringside LINKER_LANGUAGE CXX)
foreach(library ${libraries})
  target_include_directories(${library} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${library} INTERFACE cxx_std_20)
endforeach()

install(TARGETS ${libraries} EXPORT ringside
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/ringside DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ringside)
install(EXPORT ringside NAMESPACE ringside:: FILE ringside-targets.cmake
  DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(cmake/ringside-config.cmake.in ringside-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ringside-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ringside-config.cmake
              ${CMAKE_BINARY_DIR}/ringside-config-version.cmake
  DESTINATION ${package_dir} COMPONENT development)

list(TRANSFORM shown_abseil PREPEND absl_ OUTPUT_VARIABLE shown)
list(JOIN shown " " RINGSIDE_REQUIRES)
list(TRANSFORM used_abseil PREPEND absl_ OUTPUT_VARIABLE used)
list(JOIN used " " RINGSIDE_REQUIRES_PRIVATE)
file(RELATIVE_PATH RINGSIDE_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" RINGSIDE_PC_PREFIX "${RINGSIDE_PC_PREFIX}")
configure_file(cmake/ringside.pc.in ringside.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/ringside.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

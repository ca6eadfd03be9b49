# ringside_library(FOLDER USES FOLDER... DEPENDS TARGET... [OFF_PATH])
#
# The folder's .cc files as one static library, ringside_FOLDER. Its sources can include headers of
# the folders it USES and of no others: each library offers its folder alone, through a link in the
# build tree. The public headers, include/ringside/, are to the left of all: they use none.
#
# OFF_PATH: no I/O goes through it.
set(RINGSIDE_FOLDERS base poll vfio block faults file overlay nvme net agent snapshot devices kvm boot
                     vmm http api advice image command)

# What nearly every source includes takes as long to read as the rest of it to compile. That each
# names what it needs is seen by clang-tidy, which has none of this.
set(RINGSIDE_PRECOMPILED
  <algorithm> <functional> <memory> <optional> <span> <string> <vector> <absl/status/statusor.h>
  <absl/strings/str_format.h> <absl/time/time.h>)
# What no I/O goes through is compiled for size.
# Under a sanitizer it is not optimised, as that would take longer than all its tests.
if(RINGSIDE_SANITIZE)
  set(off_path_options -O0)
  set(off_path_precompiled <nlohmann/json.hpp> <CLI/CLI.hpp>)
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(off_path_options -Os -Wno-maybe-uninitialized)  # of which GCC is not sure in a std::optional
endif()

function(ringside_library folder)
  cmake_parse_arguments(ARG "OFF_PATH" "" "USES;DEPENDS" ${ARGN})
  list(FIND RINGSIDE_FOLDERS ${folder} place)
  foreach(used ${ARG_USES})
    list(FIND RINGSIDE_FOLDERS ${used} used_place)
    if(used_place LESS 0 OR NOT used_place LESS place)
      message(FATAL_ERROR "${folder}/ may not use ${used}/: folders use only those to their left "
                          "in '${RINGSIDE_FOLDERS}'")
    endif()
  endforeach()

  set(include_dir ${CMAKE_BINARY_DIR}/include/${folder})
  file(MAKE_DIRECTORY ${include_dir})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${include_dir}/${folder} SYMBOLIC)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")

  set(target ringside_${folder})
  list(TRANSFORM ARG_USES PREPEND ringside_)
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC ${include_dir})
  target_link_libraries(${target} PUBLIC ${ARG_USES} ${ARG_DEPENDS})
  if(RINGSIDE_SANITIZE)
    # Its sources are read together, which takes half as long: two of a folder may not give one name to
    # two things, not even in namespaces without a name.
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    # Whoever links it can leave out the functions that nobody calls (--gc-sections).
    target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  endif()
  if(folder STREQUAL base)
    target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include)
    # Each source is compiled once, for the static library as for the shared one; for all that is
    # built here, as the precompiled headers are shared.
    target_compile_options(${target} PUBLIC
      -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -fno-semantic-interposition)
    target_precompile_headers(${target} PRIVATE ${RINGSIDE_PRECOMPILED})
    ringside_precompiled_sum(${target})
  elseif(ARG_OFF_PATH)
    target_compile_options(${target} PRIVATE ${off_path_options})
    if(folder STREQUAL vmm)  # the first of them
      target_precompile_headers(${target} PRIVATE ${RINGSIDE_PRECOMPILED} ${off_path_precompiled})
      ringside_precompiled_sum(${target})
    else()
      target_precompile_headers(${target} REUSE_FROM ringside_vmm)
    endif()
  else()
    target_precompile_headers(${target} REUSE_FROM ringside_base)
  endif()
endfunction()

# ringside_asl(FOLDER FILE.asl): compiles ACPI source and offers it to the folder's library as a
# generated header "FOLDER/FILE.h" holding kFile, an array of bytes.
function(ringside_asl folder file)
  find_program(IASL iasl REQUIRED)
  get_filename_component(name ${file} NAME_WE)
  set(source ${CMAKE_SOURCE_DIR}/${folder}/${file})
  set(output_dir ${CMAKE_BINARY_DIR}/generated/${folder})
  set(header ${output_dir}/${name}.h)
  file(MAKE_DIRECTORY ${output_dir})
  add_custom_command(
    OUTPUT ${header}
    COMMAND ${IASL} -we -vs -p ${output_dir}/${name} ${source} > ${output_dir}/${name}.log
    COMMAND ${CMAKE_COMMAND} -DINPUT=${output_dir}/${name}.aml -DOUTPUT=${header} -DNAME=${name}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${source} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  # A target of its own, so that the header can be had without the folders below.
  add_custom_target(ringside_${folder}_${name} DEPENDS ${header})
  add_dependencies(ringside_${folder} ringside_${folder}_${name})
  target_include_directories(ringside_${folder} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()

# cgm_fuzz_program(program name SOURCES ... LIBRARIES ... WRAP ...): fuzz_<name>.c with what targets.cmake
# says that it needs.
function(cgm_fuzz_program program name)
  cmake_parse_arguments(FUZZ "" "" "SOURCES;LIBRARIES;WRAP" ${ARGN})
  set(folder ${PROJECT_SOURCE_DIR}/tests/fuzz)
  list(TRANSFORM FUZZ_SOURCES PREPEND ${folder}/)
  list(TRANSFORM FUZZ_WRAP PREPEND LINKER:--wrap=)
  add_executable(${program} ${folder}/fuzz_${name}.c ${FUZZ_SOURCES})
  target_link_libraries(${program} PRIVATE ${FUZZ_LIBRARIES})
  target_link_options(${program} PRIVATE ${FUZZ_WRAP})
endfunction()

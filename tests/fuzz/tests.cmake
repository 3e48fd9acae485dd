# The fuzz targets with any compiler: every seed, and what a few changes make of it.
include(${CMAKE_CURRENT_LIST_DIR}/program.cmake)
function(cgm_fuzz name)
  cgm_fuzz_program(seeds_${name} ${name} ${ARGN})
  target_sources(seeds_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/seeds.c)
  add_test(NAME fuzz.${name} COMMAND seeds_${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 900)
endfunction()
include(${CMAKE_CURRENT_LIST_DIR}/targets.cmake)

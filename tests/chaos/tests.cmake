file(GLOB CHAOS_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
add_executable(commgemm-chaos ${CHAOS_SOURCES})
target_link_libraries(commgemm-chaos PRIVATE cgm_bench cgm_executor fake_cuda)
target_compile_definitions(commgemm-chaos PRIVATE FAKE_CUDA="${FAKE_CUDA_FILE}"
                           CGM_BIN_DIR="${COMMGEMM_TEST_BIN_DIR}")
add_dependencies(commgemm-chaos commgemmd commgemm-executor-cpu commgemmctl sharing_executor)
add_test(NAME fault.chaos COMMAND commgemm-chaos --rounds 200)
set_tests_properties(fault.chaos PROPERTIES LABELS fault TIMEOUT 1200)

# The programs of the load figures, with less of a load.
foreach(load "crowd 20" "sessions 500" "buffers 1000" "restart 200")
  separate_arguments(words UNIX_COMMAND ${load})
  list(GET words 0 part)
  add_test(NAME fault.load_${part} COMMAND commgemm-load ${words})
  set_tests_properties(fault.load_${part} PROPERTIES LABELS fault TIMEOUT 900)
endforeach()

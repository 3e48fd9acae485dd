# The tests that need a GPU. cgm_gpu_test(name source libs...): any area's test program, built
# against the CUDA backend, becomes ctest gpu.<name>; exit status 77 means that there is no GPU.
function(cgm_gpu_test name source)
  add_executable(test_gpu_${name} ${source} gpu/host_view.c)
  target_link_libraries(test_gpu_${name} PRIVATE ${ARGN} cgm_backend_cuda cgm_proto
                        PkgConfig::CMOCKA)
  target_include_directories(test_gpu_${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(test_gpu_${name} PRIVATE CGM_BIN_DIR="${COMMGEMM_TEST_BIN_DIR}"
    CGM_SOURCE_DIR="${PROJECT_SOURCE_DIR}" CGM_TEST_BACKEND=cgm_backend_cuda
    CGM_TEST_EXECUTOR="commgemm-executor-cuda" CGM_TEST_BACKEND_NAME="cuda" CGM_TEST_ADDENDS_ROUND=true)
  add_test(NAME gpu.${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu/run_with_gpu.sh
           $<TARGET_FILE:test_gpu_${name}>)
  set_tests_properties(gpu.${name} PROPERTIES LABELS gpu TIMEOUT 600 SKIP_RETURN_CODE 77
                       RUN_SERIAL TRUE)
endfunction()

if(COMMGEMM_WITH_CUDA)
  cgm_gpu_test(conformance algo/test_conformance.c cgm_executor cgm_kernels)
  cgm_gpu_test(copy_in algo/test_copy_in.c cgm_executor cgm_kernels)
  cgm_gpu_test(executor daemon/test_executor.c)
  cgm_gpu_test(numbers daemon/test_numbers.c)
  cgm_gpu_test(entries daemon/test_entries.c)
  cgm_gpu_test(contents daemon/test_contents.c)
  cgm_gpu_test(line daemon/test_line.c)
  cgm_gpu_test(backend gpu/test_backend.c cgm_kernels)
  cgm_gpu_test(imports gpu/test_imports.c cgm_kernels)
  cgm_gpu_test(group gpu/test_group.c cgm_kernels)
  cgm_gpu_test(copy gpu/test_copy.c cgm_kernels)
  cgm_gpu_test(flagged gpu/test_flagged.c cgm_kernels)
  cgm_gpu_test(epilogue gpu/test_epilogue.c cgm_kernels)
  cgm_gpu_test(kernels gpu/test_kernels.c cgm_kernels m)
  cgm_gpu_test(int8 gpu/test_int8.c cgm_kernels)
  cgm_gpu_test(queues gpu/test_queues.c cgm_kernels)
  cgm_gpu_test(holds gpu/test_holds.c cgm_kernels)
  cgm_gpu_test(products gpu/test_products.c cgm_kernels)
  add_dependencies(test_gpu_executor commgemm-executor-cuda)
  add_dependencies(test_gpu_entries commgemm-executor-cuda)
  add_dependencies(test_gpu_contents commgemm-executor-cuda)
  add_dependencies(test_gpu_line commgemm-executor-cuda)
  foreach(name stream addresses)
    cgm_gpu_test(${name} gpu/test_${name}.c commgemm_client_static broker_fixture)
    add_dependencies(test_gpu_${name} commgemmd commgemm-executor-cuda)
  endforeach()
  cgm_gpu_test(lives gpu/test_lives.c cgm_kernels)
  cgm_gpu_test(refusals gpu/test_refusals.c broker_fixture commgemm_client_static)
  add_dependencies(test_gpu_refusals commgemmd commgemm-executor-cuda)
  cgm_gpu_test(priorities daemon/test_priorities.c broker_fixture commgemm_client_static)
  add_dependencies(test_gpu_priorities commgemmd commgemm-executor-cuda)
endif()

if(COMMGEMM_WITH_CUDA)
  add_executable(test_gpu_time gpu/time_algorithms.c)
  target_link_libraries(test_gpu_time PRIVATE cgm_executor cgm_backend_cuda cgm_kernels)
  target_include_directories(test_gpu_time SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  add_executable(test_gpu_time_flagged gpu/time_flagged.c)
  target_link_libraries(test_gpu_time_flagged PRIVATE cgm_backend_cuda cgm_device_kernels)
  target_include_directories(test_gpu_time_flagged SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endif()

# The same on the CPU backend, where every machine runs it.
add_executable(many_sessions gpu/many_sessions.c)
target_link_libraries(many_sessions PRIVATE commgemm_client_static cgm_options)
add_test(NAME daemon.leaks COMMAND sh ${PROJECT_SOURCE_DIR}/tests/gpu/leaks.sh
         ${CMAKE_BINARY_DIR}/bin 200 cpu)
set_tests_properties(daemon.leaks PROPERTIES LABELS daemon TIMEOUT 900)
add_test(NAME daemon.recovery COMMAND sh ${PROJECT_SOURCE_DIR}/tests/gpu/recovery.sh
         ${CMAKE_BINARY_DIR}/bin cpu 4 ${CMAKE_BINARY_DIR}/tests/recovery)
set_tests_properties(daemon.recovery PROPERTIES LABELS daemon TIMEOUT 900)
add_test(NAME fault.attack COMMAND sh ${PROJECT_SOURCE_DIR}/tests/gpu/attack.sh
         ${CMAKE_BINARY_DIR}/bin ${CMAKE_BINARY_DIR}/tests/attack cpu 2
         WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(fault.attack PROPERTIES LABELS fault TIMEOUT 900)

if(COMMGEMM_WITH_CUDA)
  add_executable(test_gpu_time_stream gpu/time_stream.c)
  target_link_libraries(test_gpu_time_stream PRIVATE commgemm_client_static cgm_backend_cuda
                        cgm_kernels)
  target_include_directories(test_gpu_time_stream SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endif()

if(COMMGEMM_WITH_CUDA)
  add_library(gpu_process_kernels OBJECT gpu/process_kernels.cu)
  set_target_properties(gpu_process_kernels PROPERTIES CUDA_STANDARD 17)
  target_include_directories(gpu_process_kernels PRIVATE ${PROJECT_SOURCE_DIR})
  add_executable(gpu_process gpu/process.c)
  target_link_libraries(gpu_process PRIVATE commgemm_client_static gpu_process_kernels
                        CUDA::cudart_static)
  target_include_directories(gpu_process SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endif()

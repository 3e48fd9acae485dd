# The CUDA parts (daemon/executor/cuda, kernels/*.cu) need a toolkit; everything else does not.
# COMMGEMM_CUDA: AUTO builds them where a toolkit is found, ON requires one, OFF never looks.
# Sets COMMGEMM_WITH_CUDA.
set(COMMGEMM_CUDA AUTO CACHE STRING "CUDA parts: AUTO, ON or OFF")
set_property(CACHE COMMGEMM_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT COMMGEMM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "COMMGEMM_CUDA is '${COMMGEMM_CUDA}'; it must be AUTO, ON or OFF")
endif()

set(COMMGEMM_WITH_CUDA OFF)
if(COMMGEMM_CUDA STREQUAL OFF)
  message(STATUS "CUDA parts: left out (COMMGEMM_CUDA is OFF)")
  return()
endif()

# Machine code for Ampere and Hopper; the PTX beside it for what comes after. Sanitizers do not see
# code of devices, so that a build for them has as little of it as links.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  if(COMMGEMM_SANITIZE)
    set(CMAKE_CUDA_ARCHITECTURES 80-real)
  endif()
endif()

include(CheckLanguage)
check_language(CUDA)
find_package(CUDAToolkit QUIET)
if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
  enable_language(CUDA)
  set(COMMGEMM_WITH_CUDA ON)
  message(STATUS "CUDA parts: configured with toolkit ${CUDAToolkit_VERSION}")
elseif(COMMGEMM_CUDA STREQUAL ON)
  message(FATAL_ERROR "COMMGEMM_CUDA is ON and there is no CUDA toolkit; set CUDACXX to its nvcc")
else()
  message(STATUS "CUDA parts: left out (no toolkit)")
endif()

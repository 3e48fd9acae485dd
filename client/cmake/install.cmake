# What a program needs that links the library: header, both libraries, pkg-config and CMake package.
include(CMakePackageConfigHelpers)
set(COMMGEMM_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Commgemm)

# NAMELINK, header, archive and packages belong to a development package; the rest runs programs.
install(TARGETS commgemm_client commgemm_client_static
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES include/commgemm.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

configure_file(commgemm-client.pc.in commgemm-client.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/commgemm-client.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

configure_package_config_file(cmake/CommgemmConfig.cmake.in CommgemmConfig.cmake
  INSTALL_DESTINATION ${COMMGEMM_CMAKE_DIR}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/CommgemmConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/CommgemmConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/CommgemmConfigVersion.cmake
  DESTINATION ${COMMGEMM_CMAKE_DIR} COMPONENT development)

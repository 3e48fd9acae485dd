# What a program needs that links the library: header, both libraries, pkg-config and CMake package.
include(CMakePackageConfigHelpers)
set(COMMGEMM_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/commgemm)

# NAMELINK, header, archive and packages belong to a development package; the rest runs programs.
install(TARGETS commgemm_client commgemm_client_static
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES include/commgemm.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

cgm_install_template(commgemm-client.pc.in ${CMAKE_INSTALL_LIBDIR}/pkgconfig development)

# Named in lower case, so that find_package finds it as commgemm and as Commgemm.
configure_package_config_file(cmake/CommgemmConfig.cmake.in commgemm-config.cmake
  INSTALL_DESTINATION ${COMMGEMM_CMAKE_DIR}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/commgemm-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/commgemm-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/commgemm-config-version.cmake
  DESTINATION ${COMMGEMM_CMAKE_DIR} COMPONENT development)

# The manual: the example goes in with troff's escapes, the statuses from the table.
file(READ examples/hello_gemm.c EXAMPLE)
string(REPLACE "\\" "\\e" EXAMPLE "${EXAMPLE}")
string(STRIP "${EXAMPLE}" EXAMPLE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS examples/hello_gemm.c)
set(STATUSES "@STATUSES@")
configure_file(man/libcommgemm.3.in libcommgemm.3.in @ONLY)
add_custom_command(OUTPUT libcommgemm.3
  COMMAND cgm_manual_tables < libcommgemm.3.in > libcommgemm.3
  DEPENDS cgm_manual_tables ${CMAKE_CURRENT_BINARY_DIR}/libcommgemm.3.in VERBATIM)
add_custom_target(libcommgemm_manual ALL DEPENDS libcommgemm.3)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/libcommgemm.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3
  COMPONENT development)

# cgm_install_template(FILE DESTINATION [COMPONENT]): installs FILE (less a suffix .in) with @PREFIX@,
# @BINDIR@, ... replaced by absolute paths. That is done at install time, so `cmake --install --prefix`
# puts its own prefix into units, manual pages and package files.

# Configuration belongs into /etc when the rest is in /usr; GNUInstallDirs knows that of full paths only.
set(CGM_SYSCONFDIR ${CMAKE_INSTALL_SYSCONFDIR})
if(CMAKE_INSTALL_PREFIX STREQUAL /usr)
  set(CGM_SYSCONFDIR ${CMAKE_INSTALL_FULL_SYSCONFDIR})
endif()

function(cgm_install_template file destination)
  set(component Unspecified)
  if(ARGC GREATER 2)
    set(component ${ARGV2})
  endif()
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  cmake_path(GET file FILENAME name)
  string(REGEX REPLACE "\\.in$" "" name ${name})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/installed)
  install(CODE "
    set(PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
    set(VERSION ${PROJECT_VERSION})
    set(SBINDIR ${CMAKE_INSTALL_SBINDIR})
    set(LIBDIR ${CMAKE_INSTALL_LIBDIR})
    set(LIBEXECDIR ${CMAKE_INSTALL_LIBEXECDIR})
    set(INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
    set(DOCDIR ${CMAKE_INSTALL_DOCDIR})
    set(SYSCONFDIR ${CGM_SYSCONFDIR})
    foreach(path SBINDIR LIBDIR LIBEXECDIR INCLUDEDIR DOCDIR SYSCONFDIR)
      cmake_path(ABSOLUTE_PATH \${path} BASE_DIRECTORY \"\${PREFIX}\")
    endforeach()
    configure_file(\"${file}\" \"${folder}/${name}\" @ONLY)" COMPONENT ${component})
  install(FILES ${folder}/${name} DESTINATION ${destination} COMPONENT ${component})
endfunction()

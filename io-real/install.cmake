# What `cmake --install` puts in place: the library for applications as the package `mortarmq` (find_package(mortarmq),
# link mortarmq::mortarmq, include <mortarmq/client.h>), and the programs. Components: library, programs.
include(CMakePackageConfigHelpers)
set(MORTAR_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/mortarmq)

set_target_properties(mortar_core PROPERTIES EXPORT_NAME core)
set_target_properties(mortar_io_real PROPERTIES EXPORT_NAME mortarmq)
install(TARGETS mortar_core mortar_io_real EXPORT mortarmqTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES io-real/client.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mortarmq COMPONENT library)
install(EXPORT mortarmqTargets NAMESPACE mortarmq:: DESTINATION ${MORTAR_PACKAGE_DIR} COMPONENT library)
configure_package_config_file(io-real/mortarmqConfig.cmake.in ${CMAKE_BINARY_DIR}/mortarmqConfig.cmake
  INSTALL_DESTINATION ${MORTAR_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mortarmqConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mortarmqConfig.cmake ${CMAKE_BINARY_DIR}/mortarmqConfigVersion.cmake
  DESTINATION ${MORTAR_PACKAGE_DIR} COMPONENT library)

foreach(program mortarmqd mortarmq mortarmq-hash-token mortarmq-dump mortarmq-bench)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
  endif()
endforeach()

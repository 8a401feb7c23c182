# Every test is registered here; sources are found by folder so that a new file needs no edit.
find_package(GTest CONFIG REQUIRED)
find_package(rapidcheck CONFIG REQUIRED)
include(GoogleTest)

file(GLOB_RECURSE UNIT_SOURCES CONFIGURE_DEPENDS
  tests/unit/*_test.cc tests/golden/*_test.cc tests/property/*_test.cc)
add_executable(unit_tests ${UNIT_SOURCES} tools/bench/disk_probe.cc tools/bench/histogram.cc tools/bench/load.cc)
target_link_libraries(unit_tests PRIVATE
  mortar_core fmt::fmt rapidcheck rapidcheck_gtest GTest::gtest GTest::gtest_main)
foreach(part io_sim io_real nemesis sim)
  if(TARGET mortar_${part})
    target_link_libraries(unit_tests PRIVATE mortar_${part})
  endif()
endforeach()
# GoogleTest's macros expand to code that these warnings dislike.
target_compile_options(unit_tests PRIVATE -Wno-sign-conversion -Wno-conversion -Wno-frame-larger-than)
target_compile_definitions(unit_tests PRIVATE MORTAR_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
gtest_discover_tests(unit_tests DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
include(tests/process/process.cmake OPTIONAL)
include(tests/model/model.cmake)
include(tests/mutants/mutants.cmake)
include(tests/sim.cmake)

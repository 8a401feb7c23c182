# tools/mutants plants bugs and runs the simulator and, for what only a unit test can see, the tests of these folders.
file(GLOB_RECURSE MUTANT_TEST_SOURCES CONFIGURE_DEPENDS
  tests/unit/broker_test.cc tests/unit/deliver/*_test.cc tests/unit/io-sim/*_test.cc tests/unit/log/*_test.cc
  tests/unit/nemesis/*_test.cc tests/unit/produce/*_test.cc tests/unit/session/*_test.cc tests/unit/sim/*_test.cc)
add_executable(mutant_tests EXCLUDE_FROM_ALL ${MUTANT_TEST_SOURCES})
target_link_libraries(mutant_tests PRIVATE mortar_sim GTest::gtest GTest::gtest_main)
target_compile_options(mutant_tests PRIVATE -Wno-sign-conversion -Wno-conversion -Wno-frame-larger-than)
target_compile_definitions(mutant_tests PRIVATE MORTAR_SOURCE_DIR="${CMAKE_SOURCE_DIR}")

add_test(NAME process.mutants_apply COMMAND ${CMAKE_SOURCE_DIR}/tests/process/mutants_apply.sh ${CMAKE_SOURCE_DIR})

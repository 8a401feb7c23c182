# Tests that look at whole archives, programs and source trees rather than at functions.
set(PROCESS_DIR ${CMAKE_SOURCE_DIR}/tests/process)

add_test(NAME process.layers COMMAND ${PROCESS_DIR}/layers.sh ${CMAKE_SOURCE_DIR})
add_test(NAME process.gates_catch_planted_violations COMMAND ${PROCESS_DIR}/gates_catch_planted_violations.sh)

# By file name, not by target: what mortar_core itself says it needs must not count.
add_executable(core_links_alone tests/process/core_links_alone.cc)
add_dependencies(core_links_alone mortar_core)
set_target_properties(core_links_alone PROPERTIES LINK_DEPENDS $<TARGET_FILE:mortar_core>)
target_link_libraries(core_links_alone PRIVATE
  -Wl,--whole-archive $<TARGET_FILE:mortar_core> -Wl,--no-whole-archive
  fmt::fmt roaring::roaring Boost::context PkgConfig::ISAL PkgConfig::SODIUM)
add_test(NAME process.core_links_alone COMMAND ${PROCESS_DIR}/core_links_alone.sh $<TARGET_FILE:core_links_alone>)

if(NOT MORTAR_ASAN)
  # Sanitizers add symbols of their own.
  add_test(NAME process.core_is_pure COMMAND
    ${PROCESS_DIR}/core_is_pure.sh $<TARGET_FILE:mortar_core> ${PROCESS_DIR}/core_symbols.allow)
endif()

if(NOT MORTAR_ASAN)
  # An application would have to be built with the sanitizers too.
  add_test(NAME process.find_package COMMAND ${PROCESS_DIR}/find_package.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(process.find_package PROPERTIES TIMEOUT 300)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_test(NAME process.readme COMMAND ${PROCESS_DIR}/readme.sh ${CMAKE_BINARY_DIR})
  # Where it cannot have a network of its own it uses the ports of --dev.
  set_tests_properties(process.readme PROPERTIES RUN_SERIAL TRUE TIMEOUT 600)
endif()
add_test(NAME process.round_verify COMMAND ${PROCESS_DIR}/round_verify.sh)
add_test(NAME process.cli COMMAND ${PROCESS_DIR}/cli_test.sh ${CMAKE_BINARY_DIR}/bin)
set_tests_properties(process.cli PROPERTIES TIMEOUT 300)
add_test(NAME process.cluster COMMAND ${PROCESS_DIR}/cluster_test.sh ${CMAKE_SOURCE_DIR})
set_tests_properties(process.cluster PROPERTIES TIMEOUT 300)
add_test(NAME process.dump COMMAND ${PROCESS_DIR}/dump_test.sh ${CMAKE_BINARY_DIR}/bin)
set_tests_properties(process.dump PROPERTIES TIMEOUT 300)
add_test(NAME process.broker_arguments COMMAND ${PROCESS_DIR}/broker_arguments_test.sh ${CMAKE_BINARY_DIR}/bin)
add_test(NAME process.sim_arguments COMMAND ${PROCESS_DIR}/sim_arguments_test.sh $<TARGET_FILE:sim>)
add_test(NAME process.killround COMMAND ${CMAKE_SOURCE_DIR}/tools/killround --rounds 1 --bin ${CMAKE_BINARY_DIR}/bin)
set_tests_properties(process.killround PROPERTIES TIMEOUT 300)
# How soon writes go on is judged where nothing else runs; here it only must.
foreach(hit "kill leader" "kill two" "kill all" "stop leader")
  string(REPLACE " " "_" name ${hit})
  separate_arguments(words UNIX_COMMAND "--${hit}")
  add_test(NAME process.killround_${name} COMMAND ${CMAKE_SOURCE_DIR}/tools/killround --nodes 3 ${words} --rounds 1
    --within 60000 --bin ${CMAKE_BINARY_DIR}/bin)
  set_tests_properties(process.killround_${name} PROPERTIES TIMEOUT 300)
endforeach()
add_test(NAME process.partition COMMAND ${PROCESS_DIR}/partition_test.sh ${CMAKE_BINARY_DIR}/bin)
set_tests_properties(process.partition PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_test(NAME process.determinism COMMAND ${PROCESS_DIR}/determinism.sh ${CMAKE_SOURCE_DIR} $<TARGET_FILE:sim>
    ${CMAKE_SOURCE_DIR}/build-debug/bin/sim ${CMAKE_SOURCE_DIR}/build-asan/bin/sim)
  set_tests_properties(process.determinism PROPERTIES TIMEOUT 600)
endif()

# The real broker, from outside. Each suite is a test of its own; a broker that hangs must not hang the rest.
file(GLOB PROCESS_SOURCES CONFIGURE_DEPENDS tests/process/*_test.cc tests/process/mortarmqd.cc tests/process/stalled_disk.cc)
add_executable(process_tests ${PROCESS_SOURCES})
target_link_libraries(process_tests PRIVATE mortar_core fmt::fmt nlohmann_json::nlohmann_json GTest::gtest GTest::gtest_main Threads::Threads)
target_compile_options(process_tests PRIVATE -Wno-sign-conversion -Wno-conversion -Wno-frame-larger-than)
target_compile_definitions(process_tests PRIVATE
  MORTAR_TOOLS="${CMAKE_SOURCE_DIR}/tools" MORTARMQD_PATH="$<TARGET_FILE:mortarmqd>" MORTARMQ_BENCH_PATH="$<TARGET_FILE:mortarmq-bench>" $<$<BOOL:${MORTAR_ASAN}>:MORTAR_ASAN>)
add_dependencies(process_tests mortarmqd mortarmq-bench)
foreach(suite BenchProgram ContractCodes HostileClients QuorumLevels Refusals Shutdown)
  add_test(NAME process.${suite} COMMAND process_tests --gtest_filter=${suite}.*)
  set_tests_properties(process.${suite} PROPERTIES TIMEOUT 300)
endforeach()
if(NOT MORTAR_ASAN)
  # It measures speed: nothing else may run beside it, and sanitizers would be measured instead.
  add_test(NAME process.HostileLoad COMMAND process_tests --gtest_filter=HostileLoad.*)
  set_tests_properties(process.HostileLoad PROPERTIES RUN_SERIAL TRUE TIMEOUT 300)
endif()

# Those of the contract that are built.
foreach(program mortarmqd mortarmq sim mortarmq-bench mortarmq-hash-token mortarmq-dump)
  if(TARGET ${program})
    list(APPEND CONTRACT_PROGRAMS $<TARGET_FILE:${program}>)
  endif()
endforeach()
add_test(NAME process.programs COMMAND ${PROCESS_DIR}/programs_test.sh ${CONTRACT_PROGRAMS})

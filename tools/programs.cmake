# Every program, with its sources. Adds the program to the build; what else it links follows in its own lines.
function(mortar_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE mortar_core mortar_flags)
endfunction()

mortar_program(errors_doc tools/errors_doc.cc)
mortar_program(mortarmq-hash-token tools/hash_token.cc tools/common/program.cc)
target_link_libraries(mortarmq-hash-token PRIVATE PkgConfig::SODIUM)

mortar_program(mortarmqd tools/mortarmqd.cc tools/common/program.cc)
target_link_libraries(mortarmqd PRIVATE mortar_io_real CLI11::CLI11)

mortar_program(sim sim/main.cc)
target_link_libraries(sim PRIVATE mortar_sim CLI11::CLI11)
mortar_program(mortarmq-dump tools/dump.cc tools/common/program.cc)

mortar_program(mortarmq tools/mortarmq.cc tools/cli/admin_stats.cc tools/cli/cli.cc tools/cli/connection_notes.cc
  tools/cli/consume.cc tools/cli/format.cc tools/cli/http_get.cc tools/cli/line_reader.cc tools/cli/node.cc
  tools/cli/produce.cc tools/cli/topics.cc tools/common/program.cc)
target_link_libraries(mortarmq PRIVATE mortar_io_real CLI11::CLI11 nlohmann_json::nlohmann_json)
file(GLOB BENCH_SOURCES CONFIGURE_DEPENDS tools/bench/*.cc)
mortar_program(mortarmq-bench ${BENCH_SOURCES} tools/cli/http_get.cc tools/common/program.cc)
target_link_libraries(mortarmq-bench PRIVATE mortar_io_real CLI11::CLI11 nlohmann_json::nlohmann_json)

# What people use; tests are built besides.
add_custom_target(programs DEPENDS mortarmqd mortarmq sim mortarmq-dump mortarmq-hash-token mortarmq-bench)

# One libFuzzer program a file: tests/fuzz/x_fuzz.cc becomes bin/x_fuzz. Run it with a corpus folder of your own:
#   cmake --preset fuzz && cmake --build build-fuzz --target wire_fuzz && build-fuzz/bin/wire_fuzz -max_total_time=60
file(GLOB FUZZ_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
target_compile_options(mortar_core PRIVATE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
target_link_options(mortar_core INTERFACE -fsanitize=address,undefined)
foreach(source ${FUZZ_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE mortar_core)
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
endforeach()

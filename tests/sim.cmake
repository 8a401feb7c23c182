# The simulator as a test: frozen seeds, fresh ones, crash points. Long sweeps are in tools/nightly.
file(GLOB FROZEN_SEEDS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/seeds/*.seed)
add_test(NAME sim.frozen_seeds COMMAND sim replay ${FROZEN_SEEDS})
if(MORTAR_ASAN)
  # Ten times slower: fewer, still judged for gentleness.
  add_test(NAME sim.sweep COMMAND sim sweep --seeds 1..60 --jobs 2)
  add_test(NAME sim.crashpoints COMMAND sim crashpoints --every 20 --images 5)
  add_test(NAME sim.crashpoints_of_three COMMAND sim crashpoints --nodes 3 --every 150 --images 2)
else()
  add_test(NAME sim.sweep COMMAND sim sweep --seeds 1..300 --jobs 2)
  add_test(NAME sim.crashpoints COMMAND sim crashpoints --every 11 --images 5)
  add_test(NAME sim.crashpoints_of_three COMMAND sim crashpoints --nodes 3 --every 37 --images 2)
endif()
set_tests_properties(sim.sweep sim.crashpoints sim.crashpoints_of_three PROPERTIES TIMEOUT 1800 PROCESSORS 2)

# The simulator as a test: frozen seeds, fresh ones, crash points. Long sweeps are in tools/nightly.
file(GLOB FROZEN_SEEDS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/seeds/*.seed)
if(FROZEN_SEEDS)
  add_test(NAME sim.frozen_seeds COMMAND sim replay ${FROZEN_SEEDS})
endif()
add_test(NAME sim.sweep_of_300_seeds COMMAND sim sweep --seeds 1..300 --jobs 2)
add_test(NAME sim.crashpoints COMMAND sim crashpoints --every 11 --images 5)
set_tests_properties(sim.sweep_of_300_seeds sim.crashpoints PROPERTIES TIMEOUT 1200 PROCESSORS 2)

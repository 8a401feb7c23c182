# The model of lease, election and commit: sound as it is, and broken without any one of its guards.
set(MODEL_CHECK ${CMAKE_SOURCE_DIR}/tests/model/check_model.sh ${CMAKE_SOURCE_DIR}/tests/model/replication.pml)
function(add_model_test name)
  add_test(NAME model.${name} COMMAND ${MODEL_CHECK} ${ARGN})
  set_tests_properties(model.${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endfunction()

add_model_test(holds)
# No two leaders in an epoch.
add_model_test(vote_once_is_needed NO_VOTE_ONCE leader_of)
add_model_test(promise_on_disk_is_needed NO_PROMISE_ON_DISK leader_of)
# No two valid leases at once.
add_model_test(vote_outside_lease_is_needed NO_VOTE_OUTSIDE_LEASE held_ticks)
add_model_test(restart_wait_is_needed NO_RESTART_WAIT held_ticks)
add_model_test(margin_is_needed NO_MARGIN held_ticks)
add_model_test(sent_time_is_needed NO_SENT_TIME held_ticks)
add_model_test(release_stop_is_needed NO_RELEASE_STOP held_ticks)
# Committed is never lost.
add_model_test(fence_is_needed NO_FENCE committed)
add_model_test(installed_first_is_needed NO_INSTALLED_FIRST committed)
add_model_test(majority_is_needed NO_MAJORITY committed)

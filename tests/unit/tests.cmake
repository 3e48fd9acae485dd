cgm_test(unit status cgm_proto)

add_test(NAME unit.includes COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/unit/test_includes.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(unit.includes PROPERTIES LABELS unit TIMEOUT 60)

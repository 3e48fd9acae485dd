cgm_test(daemon executor cgm_proto)
add_dependencies(test_executor commgemm-executor-cpu)

cgm_test(fault deaths broker_fixture commgemm_client_static)
add_dependencies(test_deaths commgemmd commgemm-executor-cpu)
cgm_test(fault hostile broker_fixture)
add_dependencies(test_hostile commgemmd commgemm-executor-cpu)

cgm_test(unit status cgm_proto)
cgm_shell_test(unit includes)

cgm_test(unit status cgm_proto)

# Every fuzz target: cgm_fuzz(name SOURCES files... LIBRARIES libs... [WRAP functions...]). Included
# where cgm_fuzz makes libFuzzer programs, and where it makes tests of the seeds.

# What tests/fuzz/fake_link.c stands in for.
set(FAKE_LINK cgm_starter_init cgm_starter_run kill waitpid cgm_packet_send_bytes getsockopt cgm_clock_ns cgm_log
              cgm_mps_look cgm_tool_run)

cgm_fuzz(broker SOURCES fake_link.c message.c records.c LIBRARIES cgm_broker WRAP ${FAKE_LINK})
cgm_fuzz(executor SOURCES message.c null_backend.c records.c ring_client.c
         LIBRARIES cgm_executor
         WRAP cgm_now_ns cgm_executor_log cgm_packet_recv cgm_packet_send cgm_sweeps_add
              cgm_worker_flush)
cgm_fuzz(packet LIBRARIES cgm_proto)
cgm_fuzz(ring LIBRARIES cgm_proto)
cgm_fuzz(plan LIBRARIES cgm_executor)
cgm_fuzz(entry LIBRARIES cgm_executor)
cgm_fuzz(config LIBRARIES cgm_broker)
cgm_fuzz(timings LIBRARIES cgm_proto)
cgm_fuzz(npy LIBRARIES cgm_client_common)
cgm_fuzz(shapes LIBRARIES cgm_bench)
cgm_fuzz(args LIBRARIES cgm_ctl cgm_bench)
cgm_fuzz(query LIBRARIES cgm_ctl WRAP cgm_client_call)
cgm_fuzz(client SOURCES message.c records.c LIBRARIES commgemm_client_static WRAP cgm_socket_new cgm_socket_join)
cgm_fuzz(import LIBRARIES cgm_backend_cpu)

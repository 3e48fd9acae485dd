/* What happens when: each row is an event, what follows, and the tests that show it, as
 * "area.name" or "area.name:function" (tests/<area>/test_<name>), or the path of a script.
 * commgemm(7) has the rows; a test looks for every test that they name. */
#ifndef CGM_MAN_EVENTS_H
#define CGM_MAN_EVENTS_H

struct cgm_event_row {
    const char *event, *outcome, *tests;
};

static const struct cgm_event_row cgm_events[] = {
    {"A client's process dies, or disconnects",
     "Its jobs that are not launched fail on all ranks with PEER_LOST, which names the rank; "
     "launched ones finish. Its imports are released after them, its nameless buffers go, named "
     "ones stay. The other ranks' sessions go on; the comm must be created anew",
     "daemon.executor:test_dead_session_is_named daemon.streams:test_the_dead_release_streams "
     "fault.deaths:test_client_dies_before_it_submits fault.restarts:test_lost_rank_is_remembered "
     "fault.steps"},
    {"A client's process stops, or one of its ranks never submits",
     "The jobs that wait for it fail with JOIN_TIMEOUT, which names the rank; the number is burnt, "
     "so that a rank that comes for it later gets the same status at once; the comm stays usable, "
     "until a rank is 8192 jobs behind another, or as many have failed while one has not ended: "
     "then "
     "it is given up until the executor is replaced, and jobs that need all ranks fail with "
     "PEER_LOST, which says which. Its ranks leave it, and then create it again",
     "daemon.executor:test_rank_that_never_comes_is_named "
     "daemon.numbers:test_many_burnt_numbers daemon.numbers:test_a_rank_that_is_left_behind "
     "fault.deaths:test_client_that_stops_is_named fault.steps"},
    {"A rank's stream never reaches its job",
     "READY_TIMEOUT, which names the rank, on all ranks; otherwise as above. Nothing on a device "
     "waits for a client meanwhile",
     "daemon.executor:test_stream_that_never_comes_is_named "
     "daemon.executor:test_late_stream_launches "
     "daemon.streams:test_a_stream_that_comes_too_late daemon.streams:test_a_stream_that_fails"},
    {"A job stands behind earlier ones when its deadline comes",
     "READY_TIMEOUT on all ranks, whose detail says so; the earlier ones, and those behind it, go "
     "on",
     "daemon.line:test_deadlines_count_in_line"},
    {"The ranks of a comm submit different jobs under one number",
     "MISMATCH on all ranks, which names rank and field",
     "daemon.executor:test_mismatch_names_rank_and_field"},
    {"A rank cancels a job",
     "A job that is not launched ends with CANCELLED on all ranks, also for those that submit it "
     "later; a launched one finishes",
     "daemon.numbers:test_cancel_burns_the_number"},
    {"The executor dies",
     "Jobs in flight fail with EXECUTOR_LOST and every stream that waits for one is released. The "
     "daemon starts a new executor, which takes over every buffer with its contents; what a job "
     "was "
     "writing is tainted until it is rewritten, also where a job would add to it, and is opened "
     "again, as its generation is another one. What plans' user "
     "buffers held is lost: a job that would read it, or a copy of it to another buffer, fails "
     "with TAINTED until it is copied in again. Who writes them by mappings of his own opens and "
     "maps them again: with what he had, it is STALE. Sessions stay connected and get new rings. "
     "Ranks that submit what they lost again, in its order, meet in the same jobs; what had failed "
     "otherwise stays so, also for a rank that submits it later",
     "fault.deaths:test_executor_dies_in_a_job "
     "fault.restarts:test_what_failed_before_a_restart "
     "daemon.contents:test_what_was_made_before_is_not_run "
     "daemon.numbers:test_numbers_go_on_after_a_restart "
     "unit.client_loss:test_numbers_of_lost_jobs_come_again "
     "daemon.endings:test_an_executor_dies_while_a_job_ends "
     "fault.restarts:test_user_buffers_end_with_their_executor "
     "fault.restarts:test_user_buffers_are_opened_again "
     "daemon.entries:test_nothing_is_added_to_a_tainted_buffer "
     "daemon.contents:test_lost_buffers_are_named "
     "daemon.contents:test_no_buffer_is_made_of_what_was_lost "
     "fault.deaths:test_executor_dies_again_and_again "
     "fault.restarts:test_ranks_agree_after_a_restart "
     "fault.deaths:test_executor_dies_before_it_takes_an_entry "
     "unit.client_loss:test_executor_lost unit.ring:test_jobs_in_swap_are_ended "
     "unit.ring:test_an_entry_is_of_one_job fault.steps tests/gpu/recovery.sh"},
    {"What a user has holds up the executor that takes over everything",
     "It is given up after executor_start_timeout. The next one takes over what others have; "
     "buffers of that user cannot be named any more, and imports are opened again",
     "daemon.broker_executor:test_memory_that_holds_up_an_executor "
     "fault.take_over:test_an_executor_that_cannot_take_over"},
    {"The next executor refuses what one before it had made",
     "A comm is given up: its jobs fail, and creating a plan says PEER_LOST; leave it and create "
     "another one. An import is closed, as one that is idle: STALE. A plan is made when somebody "
     "creates it again, or by the executor after that. The log has the reasons",
     "daemon.broker_executor:test_a_comm_that_the_next_executor_refuses "
     "fault.imports:test_closed_when_the_next_executor_refuses_it"},
    {"A copy_in fails, is refused, cancelled or late",
     "Jobs that would read its chunk of the user buffer, where the data of the step before still "
     "lies, fail with TAINTED on all ranks; the detail names rank, chunk and how the copy_in "
     "ended. One that succeeds, submitted later, makes the chunk sound again. Jobs that were "
     "submitted before it read what was there before",
     "daemon.contents:test_failed_copies_are_named daemon.contents:test_cancelled_copy "
     "daemon.line:test_deadlines_count_in_line "
     "daemon.line:test_the_last_copy_has_the_last_word"},
    {"A job fails, is cancelled or late before its launch",
     "Its outputs are made NaN, but for those that share bytes with what a job before it that is "
     "not launched yet is to read. Those that lie in user buffers are marked: who would read them "
     "fails with TAINTED. Of a rank whose entry was refused those are made NaN that are right by "
     "themselves, if its rows are. Where other jobs of the comm have thousands of operands around "
     "them in the same object, or some hundred between their rows or in each of many objects, they "
     "are tainted instead, and the detail says so",
     "fault.spared:test_behind_many fault.spared:test_behind_too_many "
     "fault.spared:test_beside_a_rank_with_many "
     "daemon.entries:test_bad_entries_are_refused_by_name "
     "daemon.line:test_who_fails_spoils_nothing_before_it "
     "daemon.line:test_who_fails_spoils_no_copy_before_it "
     "daemon.line:test_who_fails_alone_spoils_nothing_before_it "
     "daemon.executor:test_a_plan_goes_with_a_mismatch"},
    {"A plan is destroyed while jobs of it are in flight",
     "They finish, if the executor reads them within a second. Other ranks may create it again for "
     "theirs, unless it is for what lies in its user buffers",
     "fault.backlog:test_a_plan_is_destroyed_behind_its_jobs "
     "fault.backlog:test_a_plan_is_destroyed_behind_jobs_unread "
     "daemon.executor:test_jobs_of_a_plan_that_is_created_again "
     "daemon.line:test_buffers_of_a_plan_that_is_created_again"},
    {"A client gives back pages of memory that it has imported, with the CPU backend",
     "No page is made in their place. The job that misses one ends with STALE on all ranks, which "
     "names rank, operand and import, and so do those after it; the import is closed, until the "
     "client makes the pages and imports the memory again. On GPUs the pages are pinned",
     "fault.holes fault.extremes:test_memory_changes_under_jobs tests/gpu/test_imports.c"},
    {"Memory runs out, on the node or up to the service's MemoryMax",
     "The kernel kills the executor, not the broker; then as when an executor dies",
     "daemon.broker_surroundings:test_the_executor_goes_first"},
    {"Memory is asked for that the limit of the daemon's control group does not leave",
     "It is refused with NO_MEMORY; the detail says what was asked for, what is left, and of which "
     "group's limit. Part of the limit is kept for the daemon itself, and nothing is killed",
     "fault.memory_limit unit.cgroup"},
    {"On GPUs, an import or a buffer with an IPC handle goes while jobs run",
     "The driver lets nothing be launched until all that runs is through: launches of all users "
     "are "
     "held until then, and then go on for as long before the next such memory goes",
     "daemon.executor:test_imports_go_while_jobs_come tests/gpu/test_holds.c"},
    {"The executor hangs",
     "One that answers nothing for executor_timeout is killed, or before that, as soon as 64 MiB "
     "of messages wait for it; then as above. A user's requests of which more wait than an eighth "
     "of the room that is left are not read until it goes on. Nobody is told before it runs "
     "nothing "
     "any more, so that all ranks of a job hear the same of it",
     "daemon.broker_rings:test_ranks_are_told_the_same "
     "fault.deaths:test_executor_that_hangs fault.deaths:test_daemon_that_stops_for_long "
     "daemon.broker_executor:test_executor_that_does_not_answer "
     "daemon.broker_load:test_late_executor"},
    {"A launched job does not end within job_timeout of the end of those before it on its ranks",
     "It is aborted and fails with WATCHDOG; outputs are NaN where their type has one. When its "
     "device does not let go within as long again (1 s at least, 10 s at most, of processor time "
     "where processors are shared) the executor ends, under MPS after MPS has terminated its work "
     "there; then as above",
     "fuzz.executor daemon.overdue:test_those_before_it_do_not_count unit.runway "
     "daemon.overdue:test_late_is_not_stuck "
     "daemon.broker_mps:test_a_stuck_executor_is_ended_by_mps"},
    {"Making the outputs of a failed job NaN takes longer than job_timeout",
     "The CPU backend gives it up: the detail of the completion says so, and a buffer among the "
     "outputs is tainted",
     "daemon.overdue:test_outputs_of_failed_jobs_that_take_long"},
    {"A GPU faults, without MPS",
     "The fault of a client's kernel stays the client's; one in the executor is its death, as "
     "above",
     "daemon.broker_mps:test_gpu_lost_without_mps_is_the_executors_own tests/gpu/recovery.sh"},
    {"A GPU faults under MPS, or a process with a running kernel is killed",
     "Every process that uses the GPU through MPS has lost it. Sessions get GPU_LOST; the executor "
     "ends, and the daemon names the processes that are still attached and starts a new one when "
     "they are gone. Buffers have their contents",
     "daemon.broker_mps:test_gpu_lost_under_mps_names_who_is_attached tests/gpu/recovery.sh"},
    {"The daemon dies",
     "The executor and its jobs end with it, and every buffer too. Client libraries release their "
     "streams, and every call that needs the daemon returns DAEMON_LOST; systemd starts the daemon "
     "again",
     "fault.deaths:test_daemon_dies unit.client_loss:test_daemon_lost fault.steps"},
    {"The daemon is told to end while jobs run",
     "Nothing more is taken or launched, and requests are refused; what runs is awaited, for ten "
     "seconds, and told. Then the sessions end, and with them all other jobs, with DAEMON_LOST",
     "daemon.endings:test_the_daemon_ends_while_a_job_runs"},
    {"The daemon is stopped, alone or with its executor, and goes on",
     "Time in which it stood still does not count: who was to join, say Hello, start or submit in "
     "time, and jobs that ran, have as much left as before",
     "daemon.broker_standstill daemon.standstill "
     "daemon.broker_mps:test_mps_answers_a_daemon_that_is_stopped "
     "fault.deaths:test_daemon_that_stops_for_long"},
    {"Nobody reads the daemon's log, or systemd does not read",
     "Nobody waits for that. Lines without room are left out, and how many is logged when there is "
     "room again; systemd is told later",
     "unit.log_sink daemon.broker_surroundings:test_a_log_that_nobody_reads "
     "daemon.broker_systemd:test_nobody_waits_for_systemd"},
    {"The socket or its lock file is removed, or another one is put into its place",
     "Sessions go on; log and commgemmctl doctor say that nobody can connect any more, and the "
     "daemon leaves alone at its end what is not its own. One that does not listen yet ends",
     "daemon.broker_place"},
    {"The daemon ends, or is killed, while a client keeps one of its threads from closing a file",
     "Its executor ends, and another daemon can start. The process does nothing any more, and is "
     "gone when the file is closed",
     "fault.successors"},
    {"Memory or a quota is exhausted",
     "The request is refused with how much was asked for, used and allowed; nothing else is "
     "disturbed",
     "daemon.broker_objects:test_quotas_say_asked_used_allowed fault.limits fault.connections "
     "fault.descriptors daemon.priorities:test_a_comm_has_few_pairs"},
    {"File descriptors come that nobody closes, or more than a user may have",
     "They end their session, and a thread waits for each; the daemon serves everybody else and "
     "can "
     "start an executor meanwhile. Sessions of a user who has too many end when they are heard",
     "fault.descriptors daemon.broker_protocol:test_a_socket_in_itself"},
    {"Somebody connects, sends and ends as fast as he can, and reads nothing",
     "He has the file descriptors of as many sessions as he may have, and no more. Those who are "
     "in wait for two of his at a time, whoever connects for at most 512",
     "fault.connections:test_a_flood_of_packets_takes_no_fds unit.listener unit.closer"},
    {"A user's sessions ask for what the executor knows, and do not wait for it",
     "Four of his queries at a time are at the executor, also of sessions that have gone; "
     "meanwhile his next requests lie",
     "daemon.broker_load:test_queries_of_those_who_go"},
    {"A session is not read, as much of what it asked for is under way, and its process is gone",
     "It ends within two seconds, wherever its end of the socket lies",
     "daemon.broker_protocol:test_a_socket_in_itself_that_is_not_read"},
    {"A user has as much made and ended as it can",
     "What others ask for is made in turns with it: each step waits for one of each user's",
     "daemon.mapper fault.set_up"},
    {"A client holds locks of the system on what it shares",
     "Who gives that back waits, a thread of its user's; everybody else's memory and sessions go",
     "fault.held"},
    {"The executor gets no more threads",
     "A comm that needs some is refused. What users give back waits for a thread, in turns; a few "
     "were there before, of which a user who keeps one has no second one",
     "unit.sweeps fault.held:test_a_buffer_that_is_written_without_threads"},
    {"A bad message",
     "It is refused with a detail that names the field. After one that breaks the protocol the "
     "session is closed; nobody else notices",
     "daemon.broker_protocol fault.hostile fuzz.broker fuzz.packet"},
    {"A bad entry in a ring",
     "The job fails with a detail that names the field, on all ranks of its number; a ring whose "
     "indices are impossible ends its session",
     "daemon.entries:test_bad_entries_are_refused_by_name "
     "daemon.entries:test_broken_rings_are_reported "
     "fault.deaths:test_session_with_a_broken_ring_is_closed fuzz.entry fuzz.executor"},
    {"MPS is off, or serves another user alone",
     "Off: a warning, about 140 us for each change from one process to another. On: a warning, one "
     "faulting process takes down all. Serving another user alone: the CUDA executor, or that "
     "user's ring, is refused with the fix",
     "daemon.broker_mps:test_both_sides_are_told "
     "daemon.broker_mps:test_single_user_of_our_uid "
     "daemon.broker_mps:test_single_user_of_another_uid"},
    {"Somebody dies while a plan's algorithms are timed",
     "As otherwise: nothing is left of the trial, who waits for the plan gets EXECUTOR_LOST when "
     "that was the executor, and other plans are timed. A plan that was made keeps its algorithm",
     "daemon.tuning:test_clients_killed daemon.tuning:test_executor_killed "
     "daemon.tuning:test_daemon_ends"},
    {"What method auto measured was changed on disk, cut off, or cannot be kept",
     "The file is ignored as a whole, with a warning, and plans are timed again; without a folder "
     "that the daemon alone can write, what was measured is forgotten with it",
     "daemon.kept_timings:test_bad_files daemon.kept_timings:test_bad_folders unit.timing "
     "unit.timings:test_full_disk"},
    {"The driver, a library or peer access is missing",
     "One warning or refusal with the consequence and the fix, in the log and in commgemmctl "
     "doctor",
     "daemon.doctor daemon.broker_start:test_cuda_alone_says_why_it_does_not_start "
     "daemon.broker_start:test_auto_goes_on_with_the_cpu_and_says_so"},
};
#define CGM_EVENT_COUNT (sizeof(cgm_events) / sizeof(cgm_events[0]))

#endif

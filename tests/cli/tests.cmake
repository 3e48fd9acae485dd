cgm_shell_test(cli systemd)
cgm_shell_test(cli config)
cgm_shell_test(cli readme)
cgm_shell_test(cli install)

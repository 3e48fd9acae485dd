/* Only in the build that counts lines: gcc's counts are written by exit(), and these two do not
 * call that. */
void __real__exit(int status) __attribute__((noreturn));
void __real_abort(void) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));
void __wrap_abort(void) __attribute__((noreturn));
void __gcov_dump(void);

void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}

void __wrap_abort(void)
{
    __gcov_dump();
    __real_abort();
}

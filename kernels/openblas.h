/* OpenBLAS. It decides while it is loaded which kernels it uses, so it is loaded at run time:
 * builds that do not know a processor fall back to kernels from 2004 (a fifth of the speed), and
 * then it is loaded again and told what the processor can do. */
#ifndef CGM_OPENBLAS_H
#define CGM_OPENBLAS_H

#include <cblas.h>
#include <stddef.h>

struct cgm_openblas {
    void (*sgemm)(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE transa, enum CBLAS_TRANSPOSE transb,
                  int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                  int ldb, float beta, float *c, int ldc);
    char release[64]; /* "OpenBLAS 0.3.21 SkylakeX": its version, and whose kernels it uses */
};

/* Loads the library once a process, with this many threads, and sets the environment variables that
 * say so; call it before other threads read the environment. 0, or -1 with a sentence, also where
 * there is no address space for it. */
int cgm_openblas_load(unsigned threads, char *ret_detail, size_t detail_bytes);

/* Each thread inside the library has a buffer of it, 128 MiB of address space on x86-64, which is
 * mapped when there is none left over from another thread; where that fails the library tries again
 * for ever. This maps so many at once that no product of that many threads at a time needs more, as
 * long as there is a margin before each; no memory is taken before a product touches it. Returns
 * how many threads may be inside at a time, at most `threads`; 0: none. Call it after
 * cgm_openblas_load, while no thread is inside. A library that does not show its buffers, or whose
 * threads do not share them, is taken to have room. */
unsigned cgm_openblas_reserve(unsigned threads);
/* Of address space, for all else of the process. */
#define CGM_OPENBLAS_MARGIN_BYTES (1ull << 30)

/* Valid after cgm_openblas_load. */
extern struct cgm_openblas cgm_openblas;

#endif

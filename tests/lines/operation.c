#include <string.h>

#include "tests/lines/lines.h"

#define AT(place) (1u << (place))

const struct operation operations[] = {
    {COMMGEMM_OP_AG,
     true,
     true,
     {[LHS] = {'M', 'n', AT(CELL) | AT(CHUNK)}, [OUT] = {'m', 'n', AT(CELL) | AT(WHOLE)}}},
    {COMMGEMM_OP_RS,
     true,
     true,
     {[LHS] = {'m', 'n', AT(CELL) | AT(WHOLE)}, [OUT] = {'M', 'n', AT(CELL) | AT(CHUNK)}}},
    {COMMGEMM_OP_AR,
     true,
     true,
     {[LHS] = {'m', 'n', AT(CELL) | AT(WHOLE)}, [OUT] = {'m', 'n', AT(CELL) | AT(WHOLE)}}},
    {COMMGEMM_OP_GEMM,
     false,
     true,
     {[LHS] = {'m', 'k', AT(CELL) | AT(WHOLE)},
      [RHS] = {'k', 'n', AT(CELL)},
      [OUT] = {'m', 'n', AT(CELL)}}},
    {COMMGEMM_OP_AG_GEMM,
     true,
     true,
     {[LHS] = {'M', 'k', AT(CELL) | AT(CHUNK)},
      [RHS] = {'k', 'N', AT(CELL)},
      [OUT] = {'m', 'N', AT(CELL)},
      [AUX_OUT] = {'m', 'k', AT(ABSENT) | AT(CELL)}}},
    {COMMGEMM_OP_BULK_AG,
     true,
     true,
     {[LHS] = {'m', 'k', AT(CELL)},
      [RHS] = {'k', 'n', AT(CELL)},
      [AUX_IN] = {'M', 'k', AT(ABSENT) | AT(CELL)},
      [OUT] = {'m', 'n', AT(CELL)},
      [AUX_OUT] = {'m', 'k', AT(ABSENT) | AT(CELL)}}},
    {COMMGEMM_OP_BULK_RS,
     true,
     true,
     {[LHS] = {'m', 'k', AT(CELL)},
      [RHS] = {'k', 'n', AT(CELL)},
      [AUX_IN] = {'m', 'k', AT(ABSENT) | AT(CELL)},
      [OUT] = {'m', 'n', AT(CELL)},
      [AUX_OUT] = {'M', 'k', AT(ABSENT) | AT(CELL)}}},
    {COMMGEMM_OP_GEMM_RS,
     true,
     false,
     {[LHS] = {'m', 'K', AT(CELL)}, [RHS] = {'K', 'n', AT(CELL)}, [OUT] = {'M', 'n', AT(CELL)}}},
    {COMMGEMM_OP_GEMM_AR,
     true,
     false,
     {[LHS] = {'m', 'K', AT(CELL)}, [RHS] = {'K', 'n', AT(CELL)}, [OUT] = {'m', 'n', AT(CELL)}}},
};
const uint32_t n_operations = sizeof(operations) / sizeof(operations[0]);

static uint32_t size_of(char letter, const struct sizes *sizes)
{
    switch (letter) {
    case 'm':
        return sizes->m;
    case 'n':
        return sizes->n;
    case 'k':
        return sizes->k;
    case 'M':
        return sizes->m / sizes->world;
    case 'N':
        return sizes->n / sizes->world;
    case 'K':
        return sizes->k / sizes->world;
    default:
        return 0;
    }
}

uint32_t operand_size(const struct operation *operation, const struct sizes *sizes,
                      enum operand operand)
{
    return size_of(operation->operand[operand].rows, sizes) *
           size_of(operation->operand[operand].cols, sizes);
}

/* ---- what comes out: of small integers, so that every order of summation gives the same --------
 */

static void multiply(const float *a, const float *b, float *out, uint32_t m, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            float sum = 0;
            for (uint32_t x = 0; x < k; x++)
                sum += a[i * k + x] * b[x * n + j];
            out[i * n + j] = sum;
        }
}

static void gather(const float *parts[LINES_WORLD], uint32_t world, uint32_t size, float *out)
{
    for (uint32_t rank = 0; rank < world; rank++)
        memcpy(out + rank * size, parts[rank], size * sizeof(float));
}

static void add_up(const float *parts[LINES_WORLD], uint32_t world, uint32_t from, uint32_t size,
                   float *out)
{
    for (uint32_t i = 0; i < size; i++) {
        out[i] = 0;
        for (uint32_t rank = 0; rank < world; rank++)
            out[i] += parts[rank][from + i];
    }
}

void operation_compute(const struct operation *operation, const struct sizes *s,
                       const float *in[LINES_WORLD][OPERANDS], float *ret_out[LINES_WORLD],
                       float *ret_aux[LINES_WORLD])
{
    static float product[LINES_WORLD][LINES_CELL];
    const float *lhs[LINES_WORLD], *aux[LINES_WORLD], *products[LINES_WORLD];
    float whole[LINES_CELL];
    uint32_t w = s->world, mn = s->m * s->n, mk = s->m * s->k;
    for (uint32_t r = 0; r < w; r++) {
        lhs[r] = in[r][LHS];
        aux[r] = in[r][AUX_IN];
        products[r] = product[r];
    }
    for (uint32_t r = 0; r < w; r++) {
        switch (operation->op) {
        case COMMGEMM_OP_AG:
            gather(lhs, w, mn / w, ret_out[r]);
            break;
        case COMMGEMM_OP_RS:
            add_up(lhs, w, r * mn / w, mn / w, ret_out[r]);
            break;
        case COMMGEMM_OP_AR:
            add_up(lhs, w, 0, mn, ret_out[r]);
            break;
        case COMMGEMM_OP_AG_GEMM:
            gather(lhs, w, mk / w, whole);
            multiply(whole, in[r][RHS], ret_out[r], s->m, s->n / w, s->k);
            memcpy(ret_aux[r], whole, mk * sizeof(float));
            break;
        case COMMGEMM_OP_GEMM_RS:
        case COMMGEMM_OP_GEMM_AR:
            multiply(lhs[r], in[r][RHS], product[r], s->m, s->n, s->k / w);
            break;
        case COMMGEMM_OP_GEMM:
            if (lhs[r])
                multiply(lhs[r], in[r][RHS], ret_out[r], s->m, s->n, s->k);
            break;
        default: /* bulk_ag, bulk_rs */
            multiply(lhs[r], in[r][RHS], ret_out[r], s->m, s->n, s->k);
            if (operation->op == COMMGEMM_OP_BULK_AG)
                gather(aux, w, mk / w, ret_aux[r]);
            else
                add_up(aux, w, r * mk / w, mk / w, ret_aux[r]);
        }
    }
    for (uint32_t r = 0; r < w; r++) {
        if (operation->op == COMMGEMM_OP_GEMM_RS)
            add_up(products, w, r * mn / w, mn / w, ret_out[r]);
        if (operation->op == COMMGEMM_OP_GEMM_AR)
            add_up(products, w, 0, mn, ret_out[r]);
    }
}

/* Runs a model on several threads within a memory budget.
 *
 *     classify MODEL.onnx INPUT.f32 THREADS BUDGET_BYTES
 *
 * INPUT.f32 has the floats of the model's one input, whose open extents are taken as 1. The budget is that of each session; 0 is
 * none. Every thread has a session of its own; plan and weights are shared. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <remat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 3, MOST_THREADS = 64 };

/* Ends the program with the text of an error. */
static void check(remat_status status, const char *what)
{
    if (status != REMAT_OK) {
        fprintf(stderr, "%s: %s error: %s\n", what, remat_status_name(status), remat_last_error());
        exit(1);
    }
}

struct work {
    const remat_network *network;
    const remat_shapes *shapes;
    const char *input, *output;
    const void *data;
    size_t bytes;
    /* what the thread gives */
    float *y;
    size_t elems;
    remat_memory memory;
};

static void *classify(void *argument)
{
    struct work *work = argument;
    remat_session *session;
    check(remat_session_new(work->network, work->shapes, &session), "session");

    void *x;
    size_t bytes;
    check(remat_session_input_data(session, work->input, REMAT_F32, &x, &bytes), "input");
    if (bytes != work->bytes) {
        fprintf(stderr, "the input takes %zu bytes, and the file has %zu\n", bytes, work->bytes);
        exit(1);
    }
    memcpy(x, work->data, bytes);

    remat_tensor y = {.struct_size = sizeof y};
    for (int run = 0; run < RUNS; run++)
        check(remat_session_run(session), "run");
    check(remat_session_output(session, work->output, &y), "output");
    if (y.dtype != REMAT_F32) {
        fprintf(stderr, "the output is of %s\n", remat_dtype_name(y.dtype));
        exit(1);
    }
    work->elems = y.bytes / sizeof(float);
    work->y = malloc(y.bytes ? y.bytes : 1);
    if (!work->y)
        exit(1);
    memcpy(work->y, y.data, y.bytes);

    work->memory.struct_size = sizeof work->memory;
    check(remat_session_memory(session, &work->memory), "memory");
    remat_session_free(session);
    return NULL;
}

/* The bytes of a file. */
static void *contents(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        perror(path);
        exit(1);
    }
    long size = ftell(file);
    rewind(file);
    void *data = size >= 0 ? malloc((size_t)size + 1) : NULL;
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) {
        perror(path);
        exit(1);
    }
    fclose(file);
    *bytes = (size_t)size;
    return data;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "classify MODEL.onnx INPUT.f32 THREADS BUDGET_BYTES\n");
        return 2;
    }
    if (remat_abi_version() != REMAT_ABI_VERSION) {
        fprintf(stderr, "Remat %s is not the version that this program was compiled for\n", remat_version());
        return 1;
    }
    int threads = atoi(argv[3]);
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "1 to %d threads\n", MOST_THREADS);
        return 2;
    }

    remat_options options;
    check(remat_options_init(&options, sizeof options), "options");
    options.threads = 1; /* of each session */
    options.memory_budget_bytes = (size_t)strtoull(argv[4], NULL, 10);
    remat_network *network;
    check(remat_network_open(argv[1], &options, &network), argv[1]);

    remat_port x = {.struct_size = sizeof x}, y = {.struct_size = sizeof y};
    check(remat_network_input(network, 0, &x), "input");
    check(remat_network_output(network, 0, &y), "output");
    printf("%s: %s -> %s: %s\n", x.name, x.text, y.name, y.text);
    remat_shapes *shapes = remat_shapes_new();
    for (int64_t axis = 0; axis < x.rank; axis++)
        if (x.symbols[axis])
            check(remat_shapes_extent(shapes, x.symbols[axis], 1), x.symbols[axis]);

    size_t bytes;
    void *data = contents(argv[2], &bytes);
    struct work work[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    for (int t = 0; t < threads; t++) {
        work[t] = (struct work){.network = network, .shapes = shapes, .input = x.name, .output = y.name,
                                .data = data, .bytes = bytes};
        if (pthread_create(&ids[t], NULL, classify, &work[t]))
            return 1;
    }
    for (int t = 0; t < threads; t++)
        pthread_join(ids[t], NULL);

    for (size_t i = 0; i < work[0].elems; i++)
        printf("class %zu: %.9g\n", i, (double)work[0].y[i]);
    printf("memory: %zu bytes, %zu calls made again\n", work[0].memory.total_bytes, work[0].memory.recomputed_calls);
    int same = 1;
    for (int t = 0; t < threads; t++) {
        same &= work[t].elems == work[0].elems
                && !memcmp(work[t].y, work[0].y, work[0].elems * sizeof(float));
        if (t > 0)
            free(work[t].y);
    }
    free(work[0].y);
    free(data);
    remat_shapes_free(shapes);
    remat_network_free(network);
    printf("%d threads give %s\n", threads, same ? "the same bits" : "different bits");
    return same ? 0 : 1;
}

/* Remat: models from files, run within a memory budget.
 *
 * Made from crates/lite/src/c by `REMAT_RECORD=1 cargo test -p remat-lite --test suite c::header`.
 *
 * Status. A function that can fail gives a remat_status; remat_last_error has the text, for the thread that called. What a function
 * writes through a pointer is only there if it gave REMAT_OK.
 *
 * Memory. A handle (remat_network, remat_shapes, remat_session) is freed once with its function, in any order, and not used
 * afterwards. Every other pointer that a function gives belongs to a handle. Pointers that a program gives are read during the call
 * only, unless their function says otherwise.
 *
 * Threads. Networks may be used by many threads at once, shapes too. A session is used by one thread at a time, whichever: a second
 * one gets REMAT_BUSY. Nothing may be freed while another thread is in a call with it.
 *
 * Versions. Structs begin with struct_size, which the program sets to sizeof the struct: fields are only ever added at the end, so a
 * program keeps working with a newer library. Text is UTF-8, and ends with a zero byte. Enumerators keep their numbers; new ones may
 * come. */

#ifndef REMAT_H
#define REMAT_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of this interface. It grows when a function or a struct changes so that a program has to be compiled again; fields
 * added at the end of a struct, and new functions, do not change it.
 */
#define REMAT_ABI_VERSION 1

/**
 * The result of a call. Text for people is in remat_last_error.
 */
enum remat_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Done.
     */
    REMAT_OK = 0,
    /**
     * Shapes do not fit each other, or the model.
     */
    REMAT_SHAPE = 1,
    /**
     * An element type that is not the one that is there.
     */
    REMAT_DTYPE = 2,
    /**
     * An axis or a rank out of range.
     */
    REMAT_AXIS = 3,
    /**
     * An argument that nothing can have: NULL, an unknown name, text that is not UTF-8, a struct that is too small.
     */
    REMAT_VALUE = 4,
    /**
     * An index out of range.
     */
    REMAT_INDEX = 5,
    /**
     * A wrong number of inputs or outputs.
     */
    REMAT_ARITY = 6,
    /**
     * A device that cannot do the requested work.
     */
    REMAT_DEVICE = 7,
    /**
     * The memory budget cannot be met: remat_last_shortfall has the figures.
     */
    REMAT_BUDGET = 8,
    /**
     * A value depends on an operation that failed.
     */
    REMAT_POISONED = 9,
    /**
     * A device was closed, or the process has forked.
     */
    REMAT_CLOSED = 10,
    /**
     * The system refused a file, memory or a thread; a read callback failed.
     */
    REMAT_IO = 11,
    /**
     * A file is not what it claims to be.
     */
    REMAT_FORMAT = 12,
    /**
     * No gradient is defined.
     */
    REMAT_NOT_DIFFERENTIABLE = 13,
    /**
     * A value that is not there yet: an output before a run.
     */
    REMAT_NO_VALUE = 14,
    /**
     * A fault in Remat.
     */
    REMAT_INTERNAL = 15,
    /**
     * The session is in a call of another thread, or runs.
     */
    REMAT_BUSY = 16,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remat_status remat_status;
#else
typedef int32_t remat_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The type of a tensor's elements.
 */
enum remat_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * None: no tensor, or a type that Remat does not have.
     */
    REMAT_DTYPE_NONE = 0,
    /**
     * IEEE 754 binary16.
     */
    REMAT_F16 = 1,
    /**
     * The upper half of an IEEE 754 binary32.
     */
    REMAT_BF16 = 2,
    /**
     * float.
     */
    REMAT_F32 = 3,
    /**
     * double.
     */
    REMAT_F64 = 4,
    /**
     * int8_t.
     */
    REMAT_I8 = 5,
    /**
     * int16_t.
     */
    REMAT_I16 = 6,
    /**
     * int32_t.
     */
    REMAT_I32 = 7,
    /**
     * int64_t.
     */
    REMAT_I64 = 8,
    /**
     * uint8_t.
     */
    REMAT_U8 = 9,
    /**
     * uint16_t.
     */
    REMAT_U16 = 10,
    /**
     * uint32_t.
     */
    REMAT_U32 = 11,
    /**
     * uint64_t.
     */
    REMAT_U64 = 12,
    /**
     * A byte that is 0 or 1.
     */
    REMAT_BOOL = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remat_dtype remat_dtype;
#else
typedef int32_t remat_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The kind of an input or output.
 */
enum remat_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Something else, or the model does not say.
     */
    REMAT_KIND_UNKNOWN = 0,
    /**
     * A tensor.
     */
    REMAT_KIND_TENSOR = 1,
    /**
     * Strings.
     */
    REMAT_KIND_TEXT = 2,
    /**
     * A sequence.
     */
    REMAT_KIND_SEQUENCE = 3,
    /**
     * A value, or none.
     */
    REMAT_KIND_OPTIONAL = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum remat_kind remat_kind;
#else
typedef int32_t remat_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A model that was read. Any number of threads may use a network at once.
 */
typedef struct remat_network remat_network;

/**
 * A network for one set of input shapes. One thread at a time may use a session: a call while another thread is in one, or while it
 * runs in the background, is REMAT_BUSY.
 */
typedef struct remat_session remat_session;

/**
 * Shapes for inputs whose model leaves extents open.
 */
typedef struct remat_shapes remat_shapes;

/**
 * Workspace that sessions share, of one network or of several: they wait for each other, and take the bytes of the largest instead of
 * all.
 */
typedef struct remat_workspace remat_workspace;

/**
 * Why a budget could not be met.
 */
typedef struct remat_shortfall {
    /**
     * sizeof(remat_shortfall).
     */
    size_t struct_size;
    /**
     * The bytes that an operator needed at once.
     */
    size_t needed_bytes;
    /**
     * The budget in force.
     */
    size_t budget_bytes;
    /**
     * No smaller budget can run that operator.
     */
    size_t least_bytes;
    /**
     * The smallest budget that is known to let it run.
     */
    size_t smallest_feasible_bytes;
} remat_shortfall;

/**
 * Gives memory of at least so many bytes, of any alignment, or NULL if there is none. It is called on whatever thread makes or runs a
 * session, and must return: no exception and no longjmp may leave it.
 */
typedef void *(*remat_allocate)(void *user, size_t bytes);

/**
 * Takes memory back, with the bytes that it was asked for, on any thread.
 */
typedef void (*remat_deallocate)(void *user, void *memory, size_t bytes);

/**
 * Told that a run of this session starts, on the thread that runs, before inputs are read: it may write to the memory of inputs that it
 * has from remat_session_input_data. The session is in a call: its functions are REMAT_BUSY here, and remat_session_free frees it when
 * that call ends. It must return: no exception and no longjmp may leave it.
 */
typedef void (*remat_start)(void *user, const struct remat_session *session);

/**
 * Told once for every run that started how it ended, on the thread that ran, when outputs are there and before the call that runs
 * returns or a remat_done is called; remat_last_error has the text of an error here. For the rest as remat_start.
 */
typedef void (*remat_finish)(void *user, const struct remat_session *session, remat_status status);

/**
 * A tensor that a kernel reads or writes, row-major.
 */
typedef struct remat_operand {
    /**
     * Its elements. Those of an input must not be written.
     */
    void *data;
    /**
     * Bytes of all elements.
     */
    size_t bytes;
    /**
     * Its extents.
     */
    const int64_t *dims;
    /**
     * How many extents it has.
     */
    size_t rank;
    /**
     * The type of its elements.
     */
    remat_dtype dtype;
    /**
     * 0.
     */
    int32_t reserved;
} remat_operand;

/**
 * Computes an operator: writes all elements of the outputs, and gives 0, or another number that its error tells. `op` is the operator with
 * its parameters as JSON. It is called on whatever thread runs, for several sessions at once if they run at once. What it is given ends
 * with the call. It must return: no exception and no longjmp may leave it.
 */
typedef int32_t (*remat_kernel_run)(void *user,
                                    const char *op,
                                    const struct remat_operand *inputs,
                                    size_t input_count,
                                    const struct remat_operand *outputs,
                                    size_t output_count);

/**
 * A kernel of the caller's for one operator, in place of the one that is there.
 */
typedef struct remat_kernel {
    /**
     * The operator's name, as `remat ops` has it.
     */
    const char *op;
    /**
     * The kernel. It is called until the last network and session with these options are freed.
     */
    remat_kernel_run run;
    /**
     * Passed to run.
     */
    void *user;
} remat_kernel;

/**
 * How a network is loaded and run. remat_options_init sets all fields to what stands here as "unless set".
 */
typedef struct remat_options {
    /**
     * sizeof(remat_options), set by remat_options_init.
     */
    size_t struct_size;
    /**
     * Compute threads of a run. 0, unless set: the processors of the machine.
     */
    size_t threads;
    /**
     * Most bytes of a session with the weights that it reads. 0, unless set: no limit.
     */
    size_t memory_budget_bytes;
    /**
     * The level of passes, 0 to 3: 0 runs the model as it is written. 2 keeps every bit of that. 3, the default, may change the
     * last digits, as folding a batch norm into a convolution does.
     */
    int32_t level;
    /**
     * REMAT_F16 or REMAT_BF16 to store values between operators as; sums stay f32. REMAT_DTYPE_NONE, unless set: as the model says.
     */
    int32_t half;
    /**
     * Names of the outputs that are computed, in this order. NULL, unless set: all.
     */
    const char *const *outputs;
    /**
     * How many names there are at outputs.
     */
    size_t output_count;
    /**
     * A folder for a file that plans may copy values to, where that is cheaper than computing them again. NULL, unless set: none.
     */
    const char *spill_folder;
    /**
     * Workspace that sessions share. NULL, unless set: each has its own.
     */
    const struct remat_workspace *workspace;
    /**
     * Where sessions have their memory from, with allocator_user. NULL, unless set: from the system. Both functions are called until
     * the last network and session with these options are freed. A model that is no single graph has its memory from the system.
     */
    remat_allocate allocate;
    /**
     * Takes back what allocate gave.
     */
    remat_deallocate deallocate;
    /**
     * Passed to allocate and deallocate.
     */
    void *allocator_user;
    /**
     * The 32 bytes of the key of a file whose weights are encrypted, which are copied. NULL, unless set: none.
     */
    const uint8_t *key;
    /**
     * Called when a run of any session of the network starts, with hook_user, until the last of them is freed. NULL, unless set: none.
     */
    remat_start start;
    /**
     * Called when it has ended. NULL, unless set: none.
     */
    remat_finish finish;
    /**
     * Passed to start and finish.
     */
    void *hook_user;
    /**
     * The processors that the network computes on, numbered as the system does. The threads that it starts have these for good, and
     * the thread that calls remat_session_run while it runs. NULL, unless set: any. On Linux only.
     */
    const size_t *processors;
    /**
     * How many numbers there are at processors.
     */
    size_t processor_count;
    /**
     * The name of the device that computes: "cpu", or another that this build has. It has one arena for all sessions of the network,
     * within the budget. NULL, unless set: the calling thread computes.
     */
    const char *device;
    /**
     * Kernels of the caller's, for networks on the processor: in place of Remat's. Constants that are computed while the model
     * is read use the operators' own kernels. NULL, the default: none.
     */
    const struct remat_kernel *kernels;
    /**
     * How many there are at kernels.
     */
    size_t kernel_count;
} remat_options;

/**
 * Told that bytes which were lent are used no more, on whatever thread lets them go. It must return: no exception and no longjmp may leave
 * it.
 */
typedef void (*remat_release)(void *user, const void *data, size_t bytes);

/**
 * Reads at most so many bytes into a buffer: gives how many it read, 0 at the end, a negative number if it failed. It is called on
 * the thread that loads, and must return: no exception and no longjmp may leave it.
 */
typedef int64_t (*remat_read)(void *user, void *buffer, size_t bytes);

/**
 * An input or an output of a network. What it points to belongs to the network, and stays until that is freed.
 */
typedef struct remat_port {
    /**
     * sizeof(remat_port), set by the caller.
     */
    size_t struct_size;
    /**
     * Its name.
     */
    const char *name;
    /**
     * Its type for people, as "f32[batch, 3, 224, 224]".
     */
    const char *text;
    /**
     * Its extents: a number, or -1 where the model leaves one open. NULL if there are none.
     */
    const int64_t *extents;
    /**
     * The names of its extents, as "batch"; NULL for one that is fixed or has no name.
     */
    const char *const *symbols;
    /**
     * How many extents it has; -1 if the model does not say, or it is no tensor.
     */
    int64_t rank;
    /**
     * Its kind.
     */
    remat_kind kind;
    /**
     * The type of its elements; REMAT_DTYPE_NONE if it is no tensor, or of a type that Remat does not have.
     */
    remat_dtype dtype;
} remat_port;

/**
 * Told how a run in the background ended, on a thread of the session. It may use the session, begin the next run and free the
 * session; remat_last_error has the text of an error there. It must return: no exception and no longjmp may leave it.
 */
typedef void (*remat_done)(void *user, remat_status status);

/**
 * A tensor to read, row-major. What it points to belongs to the session, and stays until its next run begins or it is freed.
 */
typedef struct remat_tensor {
    /**
     * sizeof(remat_tensor), set by the caller.
     */
    size_t struct_size;
    /**
     * Its elements. NULL from remat_session_output_type.
     */
    const void *data;
    /**
     * Bytes of all elements.
     */
    size_t bytes;
    /**
     * Its extents.
     */
    const int64_t *dims;
    /**
     * How many extents it has.
     */
    size_t rank;
    /**
     * The type of its elements.
     */
    remat_dtype dtype;
    /**
     * 0.
     */
    int32_t reserved;
} remat_tensor;

/**
 * Bytes of a session.
 */
typedef struct remat_memory {
    /**
     * sizeof(remat_memory), set by the caller.
     */
    size_t struct_size;
    /**
     * Weights and other constants, which all sessions of the same shapes share.
     */
    size_t constant_bytes;
    /**
     * Inputs and outputs.
     */
    size_t io_bytes;
    /**
     * Bytes that live only within a run. For a model that is no single graph: the most bytes at once.
     */
    size_t workspace_bytes;
    /**
     * All of them: what the budget is compared with.
     */
    size_t total_bytes;
    /**
     * Calls that a run makes again to keep to the budget.
     */
    size_t recomputed_calls;
    /**
     * Weights that do not fit the budget and that runs read from a file when they need them; no part of total_bytes.
     */
    size_t stored_bytes;
} remat_memory;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, as "0.1.0".
 */
const char *remat_version(void);

/**
 * The version of the interface that the library has. A program was compiled for it if it equals REMAT_ABI_VERSION.
 */
uint32_t remat_abi_version(void);

/**
 * A short name of a status, as "budget". Never NULL.
 */
const char *remat_status_name(int32_t status);

/**
 * The text of the last error of this thread, empty if there was none. Never NULL. It stays until the next call on this thread that
 * fails; calls that succeed leave it.
 */
const char *remat_last_error(void);

/**
 * The figures of the last error of this thread, if its status was REMAT_BUDGET; REMAT_NO_VALUE otherwise, which leaves the last
 * error as it is.
 */
remat_status remat_last_shortfall(struct remat_shortfall *shortfall);

/**
 * Bytes of an element; 0 for a number that is no dtype.
 */
size_t remat_dtype_size(int32_t dtype);

/**
 * The name of a dtype, as "f32"; "none" for a number that is no dtype. Never NULL.
 */
const char *remat_dtype_name(int32_t dtype);

/**
 * A workspace for remat_options, to be freed with remat_workspace_free; networks and sessions keep it. NULL without memory.
 */
struct remat_workspace *remat_workspace_new(void);

/**
 * Frees the handle; the memory goes with the last session that has it. NULL is fine.
 */
void remat_workspace_free(struct remat_workspace *workspace);

/**
 * Sets all fields of options to what they are unless set: remat_options_init(&options, sizeof options).
 */
remat_status remat_options_init(struct remat_options *options, size_t struct_size);

/**
 * Reads a model from a file: ONNX, or .remat, which the first bytes tell. Weights of an ONNX model in files beside it are read from its
 * folder and below.
 *
 * options may be NULL, for those unless set. *network is to be freed with remat_network_free; after an error it is NULL.
 *
 * Errors: REMAT_IO, REMAT_FORMAT; REMAT_VALUE for options that nothing can have, and for an output that the model does not have.
 * Operators that Remat does not have are errors of remat_session_new; remat_network_unsupported lists them.
 */
remat_status remat_network_open(const char *path,
                                const struct remat_options *options,
                                struct remat_network **network);

/**
 * remat_network_open for the bytes of a file, which are copied.
 */
remat_status remat_network_from_bytes(const void *data,
                                      size_t bytes,
                                      const struct remat_options *options,
                                      struct remat_network **network);

/**
 * remat_network_from_bytes without a copy: the bytes stay as they are until release is called with user, once, on whatever thread; after
 * an error before this returns. Otherwise that is when nothing can need them any more: with the first session of a model that is one
 * graph and leaves no extent open, and at the latest when the network and its sessions are freed. Weights are read from them into memory
 * of their own. release may be NULL, for bytes that stay as long as the program.
 */
remat_status remat_network_from_borrowed(const void *data,
                                         size_t bytes,
                                         remat_release release,
                                         void *user,
                                         const struct remat_options *options,
                                         struct remat_network **network);

/**
 * remat_network_open for what read gives until it ends, at most 2 GiB. user is passed to it.
 */
remat_status remat_network_from_reader(remat_read read,
                                       void *user,
                                       const struct remat_options *options,
                                       struct remat_network **network);

/**
 * How many inputs there are; 0 for NULL.
 */
size_t remat_network_input_count(const struct remat_network *network);

/**
 * Describes an input. The port's struct_size is set before. Errors: REMAT_INDEX.
 */
remat_status remat_network_input(const struct remat_network *network, size_t index, struct remat_port *port);

/**
 * How many outputs sessions compute; 0 for NULL.
 */
size_t remat_network_output_count(const struct remat_network *network);

/**
 * Describes an output. The port's struct_size is set before. Errors: REMAT_INDEX.
 */
remat_status remat_network_output(const struct remat_network *network, size_t index, struct remat_port *port);

/**
 * How many nodes cannot run; 0 for NULL. A network that has one has no sessions.
 */
size_t remat_network_unsupported_count(const struct remat_network *network);

/**
 * Names a node that cannot run, its operator, and the most similar operator that can. NULL if there is none of that index. The text
 * stays until the network is freed.
 */
const char *remat_network_unsupported(const struct remat_network *network,
                                      size_t index);

/**
 * The name of the model's graph. NULL for NULL; the text stays until the network is freed.
 */
const char *remat_network_name(const struct remat_network *network);

/**
 * The program that wrote the file, and its version. NULL for NULL; the text stays until the network is freed.
 */
const char *remat_network_producer(const struct remat_network *network);

/**
 * The file's metadata under a key. NULL if there are none; the text stays until the network is freed.
 */
const char *remat_network_metadata(const struct remat_network *network, const char *key);

/**
 * Frees a network; its sessions stay and run. NULL is fine.
 */
void remat_network_free(struct remat_network *network);

/**
 * Shapes without any, to be freed with remat_shapes_free. NULL without memory.
 */
struct remat_shapes *remat_shapes_new(void);

/**
 * Gives an extent that has a name in the model, as "batch".
 */
remat_status remat_shapes_extent(struct remat_shapes *shapes, const char *name, int64_t n);

/**
 * Gives the whole shape of an input.
 */
remat_status remat_shapes_input(struct remat_shapes *shapes, const char *input, const int64_t *dims, size_t rank);

/**
 * Frees shapes; sessions that were made for them stay. NULL is fine.
 */
void remat_shapes_free(struct remat_shapes *shapes);

/**
 * A session of a network for inputs of these shapes. shapes may be NULL if the model leaves no extent open.
 *
 * The first session of a set of shapes plans it; further ones share plan and weights. *session is to be freed with
 * remat_session_free; after an error it is NULL. The network may be freed before.
 *
 * Errors: REMAT_VALUE for extents that are open, unknown names, and operators that Remat does not have; REMAT_SHAPE, REMAT_DTYPE for
 * what the model does not take; REMAT_BUDGET if no order of calls keeps to the budget; REMAT_IO without memory.
 */
remat_status remat_session_new(const struct remat_network *network,
                               const struct remat_shapes *shapes,
                               struct remat_session **session);

/**
 * Frees a session. A run in the background, its callback and a call of another thread are waited for; what this is called in, as the
 * session's own callback, goes on and keeps the memory until it returns. done is not called afterwards. NULL is fine.
 */
void remat_session_free(struct remat_session *session);

/**
 * The memory of an input, to be written before a run, as the type that the caller takes it to be of. It is zeros at first, stays where
 * it is until the session is freed, and keeps what was written. It must not be touched while the session runs.
 *
 * bytes may be NULL. Errors: REMAT_VALUE for an unknown name, and an input that is no tensor; REMAT_DTYPE for another type; REMAT_BUSY.
 */
remat_status remat_session_input_data(struct remat_session *session,
                                      const char *name,
                                      int32_t dtype,
                                      void **data,
                                      size_t *bytes);

/**
 * Copies a tensor to an input. Its type and shape must be those of the input, and `bytes` its size.
 *
 * Errors: REMAT_VALUE for an unknown name, another number of bytes, and an input that is no tensor; REMAT_DTYPE, REMAT_SHAPE for another
 * type or shape; REMAT_BUSY.
 */
remat_status remat_session_set_input(struct remat_session *session,
                                     const char *name,
                                     int32_t dtype,
                                     const int64_t *dims,
                                     size_t rank,
                                     const void *data,
                                     size_t bytes);

/**
 * Runs the network, and returns when it is done.
 *
 * Errors: those of its operators, which name node and operator; REMAT_BUDGET; REMAT_VALUE for a bool that is neither 0 nor 1;
 * REMAT_BUSY.
 */
remat_status remat_session_run(struct remat_session *session);

/**
 * remat_session_run with outputs in the caller's memory: data has count pointers, one for each output in order, and bytes the sizes
 * of what they point to; the run writes there. A NULL leaves an output in the session, as do those after the last pointer.
 *
 * Errors: also REMAT_VALUE for memory of another size than the output's, or not aligned to its element type, for memory that
 * overlaps other outputs or what the session gave out, and for more outputs than there are.
 */
remat_status remat_session_run_into(struct remat_session *session,
                                    void *const *data,
                                    const size_t *bytes,
                                    size_t count);

/**
 * Begins a run on a thread of the session and returns. done, which may be NULL, is called once when it has ended, with user. Until
 * then calls on this session are REMAT_BUSY, but for remat_session_wait and remat_session_free.
 *
 * Errors, after which done is not called: REMAT_BUSY; REMAT_IO without a thread.
 */
remat_status remat_session_run_async(struct remat_session *session,
                                     remat_done done,
                                     void *user);

/**
 * Waits until a run in the background and its callback have ended, and gives how the run ended, once; REMAT_OK if there was none.
 * It waits for whatever other thread began the run. In the callback it does not wait.
 */
remat_status remat_session_wait(struct remat_session *session);

/**
 * 1 if one graph runs under one plan; 0 if sizes follow from values, so that operators run one by one with the same budget, and
 * for NULL.
 */
int32_t remat_session_is_planned(const struct remat_session *session);

/**
 * Gives the workspace's memory back until the next run. Errors: REMAT_BUSY.
 */
remat_status remat_session_release_workspace(struct remat_session *session);

/**
 * An output of the last run. The caller sets the tensor's struct_size before.
 *
 * Errors: REMAT_VALUE for an unknown name, and an output that is no tensor; REMAT_NO_VALUE before a run, after one that failed, and if
 * the run wrote it to the caller's memory; REMAT_BUSY.
 */
remat_status remat_session_output(struct remat_session *session,
                                  const char *name,
                                  struct remat_tensor *tensor);

/**
 * Type and shape of an output, without its elements: known before a run, unless sizes follow from values
 * (remat_session_is_planned). The tensor's struct_size is set before.
 *
 * Errors: as remat_session_output.
 */
remat_status remat_session_output_type(struct remat_session *session, const char *name, struct remat_tensor *tensor);

/**
 * The memory of a session. The caller sets the struct's struct_size before. Errors: REMAT_BUSY.
 */
remat_status remat_session_memory(struct remat_session *session, struct remat_memory *memory);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REMAT_H */

/* What the other files share: the mapped state, device handles, and the frame of every call. */
#ifndef FAKE_NVML_CORE_H
#define FAKE_NVML_CORE_H

#include <stdint.h>
#include <time.h>

#include "abi.h"
#include "functions.h"
#include "state.h"

#define FAKE_ENUM(name) FN_##name,
enum { FAKE_FUNCTIONS(FAKE_ENUM) FN_COUNT };
#undef FAKE_ENUM

struct fake_device {
    uint32_t gpu;
    int32_t mig; /* -1: the whole card */
};

extern fake_state_t *fake_state;
extern struct fake_device fake_devices[FAKE_MAX_GPUS];
extern struct fake_device fake_mig_devices[FAKE_MAX_GPUS][FAKE_MAX_MIG];

#define FAKE_OUTPUTS 3

typedef struct {
    int function;
    fake_gpu_t *gpu; /* NULL: the call names no GPU */
    struct timespec started;
    uint32_t answer; /* FAKE_ANSWER_* */
    unsigned given;
    struct { void *at; unsigned size; int is_count; } outputs[FAKE_OUTPUTS];
} fake_call_t;

enum { FOR_CARD, FOR_CARD_OR_MIG };

uint64_t fake_now_us(void);
nvmlReturn_t fake_enter(fake_call_t *call);
nvmlReturn_t fake_enter_gpu(fake_call_t *call, uint32_t gpu);
nvmlReturn_t fake_enter_device(fake_call_t *call, nvmlDevice_t device, int scope);
void fake_leave(fake_call_t *call);
void fake_output(fake_call_t *call, void *at, unsigned size, int is_count);
uint32_t fake_read_begin(const uint32_t *sequence);
int fake_read_again(const uint32_t *sequence, uint32_t begun);
nvmlReturn_t fake_copy_text(const char *text, unsigned size, char *out, unsigned length);

/* The frame of every exported function: counts it, times it, and answers its fault if one is set. */
#define FAKE_CALL(name) \
    __attribute__((cleanup(fake_leave))) fake_call_t call = {FN_##name, 0, {0, 0}}; \
    do { nvmlReturn_t early = fake_enter(&call); if (early) return early; } while (0)

#define FAKE_DEVICE_CALL(name, device, scope) \
    __attribute__((cleanup(fake_leave))) fake_call_t call = {FN_##name, 0, {0, 0}}; \
    do { nvmlReturn_t early = fake_enter_device(&call, device, scope); if (early) return early; } while (0); \
    fake_gpu_t *gpu = call.gpu; \
    (void)gpu

/* What a divided card is not asked for, as nvml.h notes at each of these functions ("On MIG-enabled
 * GPUs, querying ... is not currently supported"). */
#define FAKE_NOT_DIVIDED() do { if (gpu->mig_mode) return NVML_ERROR_NOT_SUPPORTED; } while (0)

/* What the call writes, so that its fault can put something else there before it returns. */
#define FAKE_VALUE(out) fake_output(&call, out, sizeof *(out), 0)
#define FAKE_VALUES(out, count) fake_output(&call, out, (unsigned)((count) * sizeof *(out)), 0)
#define FAKE_COUNT(out) fake_output(&call, out, sizeof *(out), 1)

/* signal.c: what a GPU does over time, 0.0 to 100.0. */
double fake_level(const fake_gpu_t *gpu, uint64_t from_us, uint64_t to_us);
double fake_lagged_level(const fake_gpu_t *gpu, uint64_t at_us, uint64_t lag_us);
double fake_busy_seconds(const fake_gpu_t *gpu, uint64_t from_us, uint64_t to_us);
double fake_slot_percent(const fake_kernel_slot_t *slot, uint64_t from_us, uint64_t to_us);
uint64_t fake_sample_slot(const fake_gpu_t *gpu, uint64_t at_us);
int fake_moves(const fake_gpu_t *gpu);
int fake_process_alive(uint32_t pid);
int fake_slot_of(const fake_kernel_slot_t *slot, const fake_gpu_t *gpu);
int fake_slot_holds(const fake_kernel_slot_t *slot, const fake_gpu_t *gpu);

/* readings.c: the values that follow from it. */
unsigned fake_utilization(const fake_gpu_t *gpu, uint64_t now_us);
unsigned fake_power_mw(const fake_gpu_t *gpu, uint64_t at_us, int instant);
int fake_temperature_c(const fake_gpu_t *gpu, uint64_t at_us);
unsigned long long fake_energy_mj(const fake_gpu_t *gpu, uint64_t at_us);
unsigned long long fake_memory_used(const fake_gpu_t *gpu);
unsigned fake_clock_mhz(const fake_gpu_t *gpu, unsigned type, uint64_t at_us);
unsigned long long fake_event_reasons(const fake_gpu_t *gpu, uint64_t at_us);
unsigned fake_scaled(const fake_gpu_t *gpu, uint64_t at_us, unsigned full);
unsigned long long fake_counter(const fake_gpu_t *gpu, unsigned long long base, uint64_t since_us,
                                unsigned long long per_second, uint64_t at_us);

#endif

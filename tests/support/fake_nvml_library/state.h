/* The control file: what a test sets and what the simulated NVML library answers.
 *
 * A test creates the file and maps it; the library maps the same file (FAKE_NVML_STATE) at
 * nvmlInit, so a value changed by any process is what the next call answers. This header is the
 * only definition of the layout: fake_nvml.py reads it to build the same ctypes structures, so
 * keep to plain "type name;" and "type name[LIMIT];" members, one a line, with the meaning in a
 * comment behind. Text is not NUL-terminated where it fills its array.
 */
#ifndef FAKE_NVML_STATE_H
#define FAKE_NVML_STATE_H

#include <stdint.h>

#define FAKE_MAGIC 0x4c4d564eu
#define FAKE_LAYOUT_VERSION 3
#define FAKE_MAX_GPUS 32
#define FAKE_MAX_MIG 8
#define FAKE_MAX_PROCESSES 512
#define FAKE_MAX_SAMPLES 128
#define FAKE_SAMPLE_TYPES 7
#define FAKE_MAX_FUNCTIONS 192
#define FAKE_MAX_FIELDS 320
#define FAKE_MAX_LINKS 36
#define FAKE_MAX_STEPS 16
#define FAKE_MAX_EVENTS 64
#define FAKE_MAX_KERNEL_SLOTS 32
#define FAKE_MAX_KERNELS 2048

/* Where a GPU's load comes from. */
#define FAKE_WAVEFORM_MANUAL 0
#define FAKE_WAVEFORM_STEADY 1
#define FAKE_WAVEFORM_SQUARE 2
#define FAKE_WAVEFORM_STEPS 3
#define FAKE_WAVEFORM_VIRTUAL 4

#define FAKE_PROCESS_COMPUTE 1
#define FAKE_PROCESS_GRAPHICS 2
#define FAKE_PROCESS_MPS 4

/* Utilisation of a process: none recorded, as set, or its share of what the GPU does. */
#define FAKE_SAMPLE_NONE 0
#define FAKE_SAMPLE_FIXED 1
#define FAKE_SAMPLE_SHARE 2

/* What a call answers instead of the truth: zeros, rubbish, or (lists) the truth with a rubbish
 * count. */
#define FAKE_ANSWER_EMPTY 1
#define FAKE_ANSWER_GARBAGE 2
#define FAKE_ANSWER_GARBAGE_COUNT 3

typedef struct {
    uint32_t error;     /* nvmlReturn_t to answer; 0: none */
    uint32_t delay_us;  /* time to spend before answering */
    uint32_t hang;      /* block until this is 0 again */
    uint32_t remaining; /* how many more calls the error or answer is for; all ones: every call */
    uint32_t answer;    /* FAKE_ANSWER_*; 0: the truth */
} fake_fault_t;

typedef struct {
    uint64_t calls;
    uint64_t nanoseconds; /* spent inside the function, delays included */
} fake_counter_t;

typedef struct {
    uint64_t at_us; /* wall clock, as NVML's time stamps */
    double value;
} fake_sample_t;

typedef struct {
    uint32_t pid;
    uint32_t kinds;             /* FAKE_PROCESS_* bits */
    uint64_t used_bytes;        /* all ones: not available */
    uint32_t sample;            /* FAKE_SAMPLE_* */
    uint32_t sm_percent;
    uint32_t memory_percent;
    uint32_t encoder_percent;
    uint32_t decoder_percent;
    uint64_t sample_at_us;      /* 0: the newest sample time */
    uint32_t gpu_instance;      /* all ones: none */
    uint32_t compute_instance;  /* all ones: none */
} fake_process_t;

typedef struct {
    uint64_t kind;              /* nvmlEventType* */
    uint64_t data;              /* of an Xid: its code */
} fake_event_t;

typedef struct {
    char uuid[80];
    char name[96];
    uint64_t memory_total_bytes;
    uint64_t memory_used_bytes;
    uint32_t present;
    uint32_t gpu_instance;
    uint32_t compute_instance;
    uint32_t reserved;
} fake_mig_t;

typedef struct {
    char name[96];
    char uuid[80];
    char serial[32];
    char vbios[32];
    char part_number[32];

    uint32_t lost;              /* every call on this GPU answers GPU_IS_LOST */
    uint32_t minor_number;
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device_id;
    uint32_t pci_subsystem_id;
    uint32_t brand;
    uint32_t architecture;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t cores;
    uint32_t memory_bus_bits;
    int32_t numa_node;          /* -1: not supported */
    uint32_t persistence_mode;
    uint32_t compute_mode;
    uint32_t display_active;
    uint32_t display_mode;
    uint32_t virtualization_mode;
    uint64_t cpu_affinity;      /* the first 64 cores */
    uint64_t memory_affinity;

    uint32_t waveform;          /* FAKE_WAVEFORM_*; anything but manual also moves what follows load */
    uint32_t level_percent;     /* the high level of steady and square */
    uint64_t period_us;
    uint64_t phase_us;
    uint32_t duty_percent;      /* of square */
    uint32_t step_count;
    uint32_t step_percent[FAKE_MAX_STEPS]; /* levels of steps, each period / step_count long */

    uint32_t utilization;
    uint32_t memory_utilization;
    uint32_t encoder_utilization;
    uint32_t decoder_utilization;
    uint32_t jpg_utilization;
    uint32_t ofa_utilization;

    uint64_t sample_period_us;  /* spacing of the fine samples */
    uint32_t sample_capacity;   /* how many the driver's ring holds, at most FAKE_MAX_SAMPLES */
    uint32_t samples_set[FAKE_SAMPLE_TYPES];   /* 1: answer the list below, not the waveform */
    uint32_t sample_count[FAKE_SAMPLE_TYPES];
    uint32_t samples_sequence;  /* odd while the lists are being written */
    fake_sample_t samples[FAKE_SAMPLE_TYPES][FAKE_MAX_SAMPLES];

    uint64_t memory_total_bytes;
    uint64_t memory_used_bytes; /* without what a virtual GPU's jobs hold */
    uint64_t memory_reserved_bytes;
    uint64_t bar1_total_bytes;
    uint64_t bar1_used_bytes;

    uint32_t power_mw;          /* one-second average */
    uint32_t power_instant_mw;
    uint32_t power_idle_mw;
    uint32_t power_limit_mw;
    uint32_t power_limit_enforced_mw;
    uint32_t power_limit_default_mw;
    uint32_t power_limit_min_mw;
    uint32_t power_limit_max_mw;
    uint32_t power_lag_us;      /* how slowly power follows load */
    uint64_t energy_mj;
    uint64_t energy_since_us;   /* when energy_mj was true; a moving load adds to it */
    uint64_t retired_busy_us;   /* of virtual jobs whose place was given to another */

    int32_t temperature_c;
    int32_t temperature_idle_c;
    int32_t temperature_full_c;
    int32_t temperature_memory_c;
    uint32_t temperature_threshold_c[8]; /* by nvmlTemperatureThresholds_t; 0: not supported */
    uint32_t margins_supported; /* the margin temperature and the limits that go with it */
    int32_t temperature_margin_c;
    int32_t temperature_margin_slowdown_c;
    int32_t temperature_margin_shutdown_c;
    uint32_t fan_count;         /* 0: no fan of its own */
    uint32_t fan_percent[4];
    uint32_t fan_rpm;

    uint32_t clock_graphics_mhz;
    uint32_t clock_sm_mhz;
    uint32_t clock_memory_mhz;
    uint32_t clock_video_mhz;
    uint32_t clock_graphics_max_mhz;
    uint32_t clock_sm_max_mhz;
    uint32_t clock_memory_max_mhz;
    uint32_t clock_video_max_mhz;
    uint32_t clock_sm_idle_mhz;
    uint32_t performance_state;
    uint64_t event_reasons;
    uint64_t event_reasons_supported;
    uint64_t reason_sw_power_cap_ns;
    uint64_t reason_sync_boost_ns;
    uint64_t reason_sw_thermal_ns;
    uint64_t reason_hw_thermal_ns;
    uint64_t reason_hw_power_brake_ns;

    uint32_t pcie_generation;
    uint32_t pcie_width;
    uint32_t pcie_generation_max;
    uint32_t pcie_width_max;
    uint32_t pcie_rx_kib_per_second;
    uint32_t pcie_tx_kib_per_second;
    uint32_t pcie_replays;
    uint32_t nvlink_count;
    uint64_t nvlink_down;       /* bit n: link n is not active */
    uint32_t nvlink_version;
    uint32_t nvlink_mbps;
    uint64_t nvlink_rx_kib;     /* counters; a moving load adds the rates below */
    uint64_t nvlink_tx_kib;
    uint64_t nvlink_rx_kib_per_second;
    uint64_t nvlink_tx_kib_per_second;
    uint64_t nvlink_since_us;
    uint32_t nvlink_crc_errors; /* all links together; the second link has one of each, if any */
    uint32_t nvlink_replays;
    uint32_t nvlink_recoveries;

    uint64_t event_kinds;       /* those it can report */
    uint32_t event_count;       /* so far; the newest FAKE_MAX_EVENTS are in the ring */
    fake_event_t events[FAKE_MAX_EVENTS];

    uint32_t ecc_supported;
    uint32_t ecc_mode;
    uint32_t ecc_pending;
    uint32_t retired_pending;
    uint64_t ecc_volatile_corrected;
    uint64_t ecc_volatile_uncorrected;
    uint64_t ecc_aggregate_corrected;
    uint64_t ecc_aggregate_uncorrected;
    uint32_t remapped_supported;
    uint32_t remapped_correctable;
    uint32_t remapped_uncorrectable;
    uint32_t remapped_pending;
    uint32_t remapped_failed;
    uint32_t retired_single;
    uint32_t retired_double;

    uint32_t gpm_supported;
    double gpm_sm_percent;      /* manual; a moving load scales them all */
    double gpm_sm_occupancy_percent;
    double gpm_tensor_percent;
    double gpm_dram_percent;
    double gpm_fp64_percent;
    double gpm_fp32_percent;
    double gpm_fp16_percent;

    uint32_t mig_supported;
    uint32_t mig_mode;
    uint32_t mig_pending;
    uint32_t reserved;
    fake_mig_t mig[FAKE_MAX_MIG];

    uint32_t process_count;
    uint32_t process_sequence;  /* odd while the list is being written */
    uint32_t process_growth;    /* so many filling calls find that the list has grown; all ones: each */
    uint32_t process_record_bytes; /* of each listed process; 0: as the function's version says */
    uint32_t process_clears;    /* 1: the room behind the listed processes is set to zeros */
    uint32_t process_blank_samples; /* all-zero entries before the real ones, as some drivers give */
    fake_process_t processes[FAKE_MAX_PROCESSES];

    uint32_t field_error[FAKE_MAX_FIELDS]; /* nvmlReturn of one field value */
    fake_fault_t faults[FAKE_MAX_FUNCTIONS];
    fake_counter_t counters[FAKE_MAX_FUNCTIONS];
} fake_gpu_t;

typedef struct {
    uint64_t start_us;
    uint64_t end_us;
} fake_kernel_t;

/* One per job and GPU: when the job kept the GPU busy. Only the job writes it; the interval is
 * written before the head moves, so a reader needs no lock. What a job that has ended left here
 * stays, as a driver's samples do, until another job needs the place. */
typedef struct {
    uint32_t pid;               /* 0: free */
    uint32_t gpu;
    uint32_t closed;            /* the job has let go of the GPU */
    uint32_t reserved;
    uint64_t used_bytes;
    uint64_t total_busy_us;
    uint64_t open_since_us;     /* a kernel runs since then; 0: none */
    uint32_t power_percent;     /* of the span from idle to limit that kernels draw */
    uint32_t sm_percent;        /* of the SMs a kernel fills */
    uint64_t head;              /* intervals written so far */
    fake_kernel_t kernels[FAKE_MAX_KERNELS];
} fake_kernel_slot_t;

typedef struct {
    uint32_t magic;
    uint32_t layout_version;
    uint64_t size;
    uint32_t gpu_count;
    uint32_t init_count;        /* nvmlInit calls less nvmlShutdown calls, over all processes */
    uint64_t now_us;            /* the clock the library goes by; 0: the machine's */
    char driver_version[80];
    char nvml_version[80];
    uint32_t cuda_version;
    uint32_t reserved;
    fake_fault_t faults[FAKE_MAX_FUNCTIONS];     /* for every GPU, and for calls that name none */
    fake_counter_t counters[FAKE_MAX_FUNCTIONS]; /* over all GPUs */
    fake_gpu_t gpus[FAKE_MAX_GPUS];
    fake_kernel_slot_t kernel_slots[FAKE_MAX_KERNEL_SLOTS];
} fake_state_t;

#endif

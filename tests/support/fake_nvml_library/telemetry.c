/* Memory, load, power, heat, clocks and PCIe: the readings that move. */
#include "core.h"

#include <string.h>

#define NUMBER(name, value) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned *out) { \
        FAKE_DEVICE_CALL(name, device, FOR_CARD); \
        if (!out) return NVML_ERROR_INVALID_ARGUMENT; \
        *out = (value); \
        FAKE_VALUE(out); \
        return NVML_SUCCESS; \
    }

static void memory_of(nvmlDevice_t device, const fake_gpu_t *gpu, unsigned long long *total,
                      unsigned long long *used, unsigned long long *reserved) {
    int card = device->mig < 0;
    *total = card ? gpu->memory_total_bytes : gpu->mig[device->mig].memory_total_bytes;
    *used = card ? fake_memory_used(gpu) : gpu->mig[device->mig].memory_used_bytes;
    *reserved = card ? gpu->memory_reserved_bytes : 0;
}

/* The first version counts what the driver itself holds as used; the second keeps it apart. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    FAKE_DEVICE_CALL(nvmlDeviceGetMemoryInfo, device, FOR_CARD_OR_MIG);
    unsigned long long reserved;
    memory_of(device, gpu, &memory->total, &memory->used, &reserved);
    memory->used += reserved;
    FAKE_VALUE(memory);
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    FAKE_DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2, device, FOR_CARD_OR_MIG);
    if (memory->version != ((2u << 24) | sizeof *memory)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory_of(device, gpu, &memory->total, &memory->used, &memory->reserved);
    FAKE_VALUE(memory);
    unsigned long long taken = memory->used + memory->reserved;
    memory->free = memory->total > taken ? memory->total - taken : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    FAKE_DEVICE_CALL(nvmlDeviceGetBAR1MemoryInfo, device, FOR_CARD_OR_MIG);
    memory->bar1Total = gpu->bar1_total_bytes;
    memory->bar1Used = gpu->bar1_used_bytes;
    memory->bar1Free = gpu->bar1_total_bytes - gpu->bar1_used_bytes;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    FAKE_DEVICE_CALL(nvmlDeviceGetUtilizationRates, device, FOR_CARD);
    FAKE_NOT_DIVIDED();
    uint64_t now = fake_now_us();
    FAKE_VALUE(rates);
    rates->gpu = fake_utilization(gpu, now);
    rates->memory = fake_scaled(gpu, now, gpu->memory_utilization);
    return NVML_SUCCESS;
}

#define ENGINE(name, member) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned *percent, unsigned *period_us) { \
        FAKE_DEVICE_CALL(name, device, FOR_CARD); \
        FAKE_NOT_DIVIDED(); \
        *percent = fake_scaled(gpu, fake_now_us(), gpu->member); \
        *period_us = (unsigned)gpu->sample_period_us; \
        FAKE_VALUE(percent); \
        return NVML_SUCCESS; \
    }
ENGINE(nvmlDeviceGetEncoderUtilization, encoder_utilization)
ENGINE(nvmlDeviceGetDecoderUtilization, decoder_utilization)
ENGINE(nvmlDeviceGetJpgUtilization, jpg_utilization)
ENGINE(nvmlDeviceGetOfaUtilization, ofa_utilization)

NUMBER(nvmlDeviceGetPowerUsage, fake_power_mw(gpu, fake_now_us(), 0))
NUMBER(nvmlDeviceGetPowerState, gpu->performance_state)
NUMBER(nvmlDeviceGetPerformanceState, gpu->performance_state)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, gpu->power_limit_enforced_mw)
NUMBER(nvmlDeviceGetPowerManagementMode, 1)
NUMBER(nvmlDeviceGetPowerManagementLimit, gpu->power_limit_mw)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, gpu->power_limit_default_mw)

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least,
                                                          unsigned *most) {
    FAKE_DEVICE_CALL(nvmlDeviceGetPowerManagementLimitConstraints, device, FOR_CARD);
    FAKE_VALUE(least);
    FAKE_VALUE(most);
    *least = gpu->power_limit_min_mw;
    *most = gpu->power_limit_max_mw;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    FAKE_DEVICE_CALL(nvmlDeviceGetTotalEnergyConsumption, device, FOR_CARD);
    *energy = fake_energy_mj(gpu, fake_now_us());
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    FAKE_DEVICE_CALL(nvmlDeviceGetTemperature, device, FOR_CARD);
    if (sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
    FAKE_VALUE(celsius);
    *celsius = (unsigned)fake_temperature_c(gpu, fake_now_us());
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    FAKE_DEVICE_CALL(nvmlDeviceGetTemperatureV, device, FOR_CARD);
    if (temperature->version != ((1u << 24) | sizeof *temperature))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensorType != 0) return NVML_ERROR_INVALID_ARGUMENT;
    temperature->temperature = fake_temperature_c(gpu, fake_now_us());
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *margin) {
    FAKE_DEVICE_CALL(nvmlDeviceGetMarginTemperature, device, FOR_CARD);
    if (margin->version != ((1u << 24) | sizeof *margin)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!gpu->margins_supported) return NVML_ERROR_NOT_SUPPORTED;
    fake_output(&call, &margin->marginTemperature, sizeof(int), 0);
    margin->marginTemperature = gpu->temperature_margin_c;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned which, unsigned *celsius) {
    FAKE_DEVICE_CALL(nvmlDeviceGetTemperatureThreshold, device, FOR_CARD);
    if (which >= 8) return NVML_ERROR_INVALID_ARGUMENT;
    if (!gpu->temperature_threshold_c[which]) return NVML_ERROR_NOT_SUPPORTED;
    FAKE_VALUE(celsius);
    *celsius = gpu->temperature_threshold_c[which];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *percent) {
    FAKE_DEVICE_CALL(nvmlDeviceGetFanSpeed, device, FOR_CARD);
    if (!gpu->fan_count) return NVML_ERROR_NOT_SUPPORTED;
    FAKE_VALUE(percent);
    *percent = gpu->fan_percent[0];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *percent) {
    FAKE_DEVICE_CALL(nvmlDeviceGetFanSpeed_v2, device, FOR_CARD);
    if (!gpu->fan_count) return NVML_ERROR_NOT_SUPPORTED;
    if (fan >= gpu->fan_count) return NVML_ERROR_INVALID_ARGUMENT;
    *percent = gpu->fan_percent[fan % 4];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t device, nvmlFanSpeedInfo_t *info) {
    FAKE_DEVICE_CALL(nvmlDeviceGetFanSpeedRPM, device, FOR_CARD);
    if (info->version != ((1u << 24) | sizeof *info)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!gpu->fan_count) return NVML_ERROR_NOT_SUPPORTED;
    info->speed = gpu->fan_rpm;
    return NVML_SUCCESS;
}

NUMBER(nvmlDeviceGetNumFans, gpu->fan_count)

static unsigned clock_max(const fake_gpu_t *gpu, unsigned type) {
    const unsigned clocks[] = {gpu->clock_graphics_max_mhz, gpu->clock_sm_max_mhz,
                               gpu->clock_memory_max_mhz, gpu->clock_video_max_mhz};
    return clocks[type];
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz) {
    FAKE_DEVICE_CALL(nvmlDeviceGetClockInfo, device, FOR_CARD);
    if (type > 3) return NVML_ERROR_INVALID_ARGUMENT;
    FAKE_VALUE(mhz);
    *mhz = fake_clock_mhz(gpu, type, fake_now_us());
    return NVML_SUCCESS;
}

#define MAX_CLOCK(name) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned type, unsigned *mhz) { \
        FAKE_DEVICE_CALL(name, device, FOR_CARD); \
        if (type > 3) return NVML_ERROR_INVALID_ARGUMENT; \
        *mhz = clock_max(gpu, type); \
        FAKE_VALUE(mhz); \
        return NVML_SUCCESS; \
    }
MAX_CLOCK(nvmlDeviceGetMaxClockInfo)
MAX_CLOCK(nvmlDeviceGetMaxCustomerBoostClock)
MAX_CLOCK(nvmlDeviceGetApplicationsClock)

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned type, unsigned id, unsigned *mhz) {
    FAKE_DEVICE_CALL(nvmlDeviceGetClock, device, FOR_CARD);
    if (type > 3 || id > 3) return NVML_ERROR_INVALID_ARGUMENT;
    *mhz = id == 0 ? fake_clock_mhz(gpu, type, fake_now_us()) : clock_max(gpu, type);
    return NVML_SUCCESS;
}

#define REASONS(name, value) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned long long *reasons) { \
        FAKE_DEVICE_CALL(name, device, FOR_CARD); \
        *reasons = (value); \
        FAKE_VALUE(reasons); \
        return NVML_SUCCESS; \
    }
REASONS(nvmlDeviceGetCurrentClocksEventReasons, fake_event_reasons(gpu, fake_now_us()))
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons, fake_event_reasons(gpu, fake_now_us()))
REASONS(nvmlDeviceGetSupportedClocksEventReasons, gpu->event_reasons_supported)
REASONS(nvmlDeviceGetSupportedClocksThrottleReasons, gpu->event_reasons_supported)

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned policy,
                                          nvmlViolationTime_t *time) {
    FAKE_DEVICE_CALL(nvmlDeviceGetViolationStatus, device, FOR_CARD);
    time->referenceTime = fake_now_us();
    switch (policy) {
    case 0: time->violationTime = gpu->reason_sw_power_cap_ns; break;
    case 1: time->violationTime = gpu->reason_sw_thermal_ns + gpu->reason_hw_thermal_ns; break;
    case 2: time->violationTime = gpu->reason_sync_boost_ns; break;
    case 3: time->violationTime = gpu->reason_hw_power_brake_ns; break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter, unsigned *kib) {
    FAKE_DEVICE_CALL(nvmlDeviceGetPcieThroughput, device, FOR_CARD);
    if (counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned full = counter == 0 ? gpu->pcie_tx_kib_per_second : gpu->pcie_rx_kib_per_second;
    FAKE_VALUE(kib);
    *kib = fake_scaled(gpu, fake_now_us(), full);
    return NVML_SUCCESS;
}

NUMBER(nvmlDeviceGetPcieReplayCounter, gpu->pcie_replays)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, gpu->pcie_generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, gpu->pcie_width)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, gpu->pcie_generation_max)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, gpu->pcie_generation_max)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, gpu->pcie_width_max)

nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned *mbps) {
    FAKE_DEVICE_CALL(nvmlDeviceGetPcieSpeed, device, FOR_CARD);
    static const unsigned speeds[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    *mbps = speeds[gpu->pcie_generation < 7 ? gpu->pcie_generation : 0];
    return NVML_SUCCESS;
}

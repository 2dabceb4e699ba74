/* nvmlDeviceGetFieldValues: each field answers, or refuses, on its own. */
#include "core.h"

#include <string.h>

static nvmlReturn_t number(nvmlFieldValue_t *field, unsigned value) {
    field->valueType = NVML_VALUE_UINT;
    field->value.uiVal = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t large(nvmlFieldValue_t *field, unsigned long long value) {
    field->valueType = NVML_VALUE_ULONGLONG;
    field->value.ullVal = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t ecc_field(const fake_gpu_t *gpu, nvmlFieldValue_t *field) {
    if (!gpu->ecc_supported) return NVML_ERROR_NOT_SUPPORTED;
    switch (field->fieldId) {
    case 1: return number(field, gpu->ecc_mode);
    case 2: return number(field, gpu->ecc_pending);
    case 3: return large(field, gpu->ecc_volatile_corrected);
    case 4: return large(field, gpu->ecc_volatile_uncorrected);
    case 5: return large(field, gpu->ecc_aggregate_corrected);
    default: return large(field, gpu->ecc_aggregate_uncorrected);
    }
}

/* The whole card's NVLink traffic: scope all ones, or 0 on a card whose links are one. */
static nvmlReturn_t nvlink_field(const fake_gpu_t *gpu, nvmlFieldValue_t *field, uint64_t now) {
    if (!gpu->nvlink_count) return NVML_ERROR_NOT_SUPPORTED;
    int transmit = field->fieldId == 138 || field->fieldId == 140;
    unsigned long long kib =
        transmit ? fake_counter(gpu, gpu->nvlink_tx_kib, gpu->nvlink_since_us,
                                gpu->nvlink_tx_kib_per_second, now)
                 : fake_counter(gpu, gpu->nvlink_rx_kib, gpu->nvlink_since_us,
                                gpu->nvlink_rx_kib_per_second, now);
    if (field->fieldId >= 140) kib += kib / 8; /* raw: with the protocol's own share */
    if (field->scopeId != UINT32_MAX) {
        if (field->scopeId >= gpu->nvlink_count) return NVML_ERROR_INVALID_ARGUMENT;
        kib /= gpu->nvlink_count;
    }
    return large(field, kib);
}

/* Of each link up to Hopper, of all together before (45, 52, 59) and after it (215). */
static nvmlReturn_t nvlink_error_field(const fake_gpu_t *gpu, nvmlFieldValue_t *field) {
    if (!gpu->nvlink_count) return NVML_ERROR_NOT_SUPPORTED;
    unsigned of_blackwell = gpu->architecture >= 10;
    switch (field->fieldId) {
    case 45: return number(field, gpu->nvlink_crc_errors);
    case 52: return number(field, gpu->nvlink_replays);
    case 59: return number(field, gpu->nvlink_recoveries);
    case 215:
        if (!of_blackwell) return NVML_ERROR_INVALID_ARGUMENT;
        if (field->scopeId != UINT32_MAX) return NVML_ERROR_NOT_SUPPORTED;
        return number(field, gpu->nvlink_recoveries);
    }
    if (of_blackwell) return NVML_ERROR_NOT_SUPPORTED;
    if (field->scopeId >= gpu->nvlink_count) return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned all[] = {gpu->nvlink_replays, gpu->nvlink_recoveries, gpu->nvlink_crc_errors};
    unsigned count = all[field->fieldId - 161], second = count ? 1 : 0;
    if (field->scopeId > 1) return number(field, 0);
    return number(field, field->scopeId == 1 ? second : count - second);
}

static nvmlReturn_t remapped_field(const fake_gpu_t *gpu, nvmlFieldValue_t *field) {
    if (!gpu->remapped_supported) return NVML_ERROR_NOT_SUPPORTED;
    const unsigned values[] = {gpu->remapped_correctable, gpu->remapped_uncorrectable,
                               gpu->remapped_pending, gpu->remapped_failed};
    return number(field, values[field->fieldId - 142]);
}

static nvmlReturn_t power_field(const fake_gpu_t *gpu, nvmlFieldValue_t *field, uint64_t now) {
    switch (field->fieldId) {
    case 185: return number(field, fake_power_mw(gpu, now, 0));
    case 186: return number(field, fake_power_mw(gpu, now, 1));
    case 187: return number(field, gpu->power_limit_min_mw);
    case 188: return number(field, gpu->power_limit_max_mw);
    case 189: return number(field, gpu->power_limit_default_mw);
    case 190: return number(field, gpu->power_limit_enforced_mw);
    case 191: return large(field, fake_energy_mj(gpu, now));
    default: return number(field, gpu->power_limit_mw);
    }
}

static nvmlReturn_t other_field(const fake_gpu_t *gpu, nvmlFieldValue_t *field, uint64_t now) {
    switch (field->fieldId) {
    case 29: return number(field, gpu->retired_single);
    case 30: return number(field, gpu->retired_double);
    case 31: return number(field, gpu->retired_pending);
    case 74: return large(field, gpu->reason_sw_power_cap_ns);
    case 75: return large(field, gpu->reason_sw_thermal_ns + gpu->reason_hw_thermal_ns);
    case 76: return large(field, gpu->reason_sync_boost_ns);
    case 82:
        return gpu->temperature_memory_c ? number(field, (unsigned)gpu->temperature_memory_c)
                                         : NVML_ERROR_NOT_SUPPORTED;
    case 83: return large(field, fake_energy_mj(gpu, now));
    case 90:
        return gpu->nvlink_count ? number(field, gpu->nvlink_mbps) : NVML_ERROR_NOT_SUPPORTED;
    case 91: return number(field, gpu->nvlink_count);
    case 94: return number(field, gpu->pcie_replays);
    case 193:
    case 194:
        if (!gpu->margins_supported) return NVML_ERROR_NOT_SUPPORTED;
        return number(field, (unsigned)(field->fieldId == 193 ? gpu->temperature_margin_shutdown_c
                                                              : gpu->temperature_margin_slowdown_c));
    case 197: return large(field, fake_counter(gpu, 0, gpu->nvlink_since_us,
                                               gpu->pcie_tx_kib_per_second * 1024ull, now));
    case 198: return large(field, fake_counter(gpu, 0, gpu->nvlink_since_us,
                                               gpu->pcie_rx_kib_per_second * 1024ull, now));
    case 269: return large(field, gpu->reason_sw_thermal_ns);
    case 270: return large(field, gpu->reason_hw_thermal_ns);
    case 271: return large(field, gpu->reason_hw_power_brake_ns);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

static nvmlReturn_t answer(const fake_gpu_t *gpu, nvmlFieldValue_t *field, uint64_t now) {
    unsigned id = field->fieldId;
    if (id == 0 || id >= FAKE_MAX_FIELDS) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu->field_error[id]) return gpu->field_error[id];
    if (id <= 6) return ecc_field(gpu, field);
    if (id >= 138 && id <= 141) return nvlink_field(gpu, field, now);
    if (id == 45 || id == 52 || id == 59 || id == 215 || (id >= 161 && id <= 163)) {
        return nvlink_error_field(gpu, field);
    }
    if (id >= 142 && id <= 145) return remapped_field(gpu, field);
    if (id >= 185 && id <= 192) return power_field(gpu, field, now);
    return other_field(gpu, field, now);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    FAKE_DEVICE_CALL(nvmlDeviceGetFieldValues, device, FOR_CARD);
    if (count <= 0 || !values) return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t now = fake_now_us();
    FAKE_VALUES(values, count);
    for (int i = 0; i < count; i++) {
        values[i].timestamp = (long long)now;
        values[i].latencyUsec = 0;
        values[i].valueType = NVML_VALUE_UINT;
        values[i].value.ullVal = 0;
        values[i].nvmlReturn = answer(gpu, &values[i], now);
    }
    return NVML_SUCCESS;
}

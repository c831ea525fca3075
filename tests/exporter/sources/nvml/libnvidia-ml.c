/* A FAKE libnvidia-ml.so.1: one GPU that works and one that fell off the bus, for the real pynvml to call.
 * Structures and signatures are nvml.h's. With MIG in the environment the GPU is split, into one instance, number 9. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15,
       VERSION_MISMATCH = 25 };

typedef struct { int mig; } device;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } process;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } work;
typedef struct { double at; } sample;
typedef struct { unsigned id; int result; double value; struct { char *name, *unit, *kind; } info; } metric;
typedef struct { unsigned version, count; sample *first, *second; metric metrics[333]; } question;

static device gpu = {0}, instance = {1};

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

static int measured(sample *s) { s->at = now(); return SUCCESS; }
static int text(char *to, const char *words) { strcpy(to, words); return SUCCESS; }

int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d) { *d = &gpu; return index ? LOST : SUCCESS; }
int nvmlDeviceGetUUID(device *d, char *to, unsigned size) { return text(to, d->mig ? "MIG-x" : "GPU-x"); }
int nvmlDeviceGetName(device *d, char *to, unsigned size) { return text(to, d->mig ? "H100 MIG 1g.10gb" : "H100"); }
int nvmlDeviceGetUtilizationRates(device *d, unsigned *rates) { rates[0] = 37; rates[1] = 1; return SUCCESS; }
int nvmlDeviceGetPowerUsage(device *d, unsigned *mw) { *mw = 71234; return SUCCESS; }
int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mj) { *mj = 5500; return SUCCESS; }
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius) { *celsius = 41; return SUCCESS; }
int nvmlDeviceGetMigMode(device *d, unsigned *is, unsigned *will) { *is = *will = !!getenv("MIG"); return SUCCESS; }
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *most) { *most = 7; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned i, device **m) { *m = &instance; return i ? NOT_FOUND : 0; }
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) { *id = 9; return d->mig ? SUCCESS : NOT_SUPPORTED; }

int nvmlDeviceGetMemoryInfo_v2(device *d, memory_v2 *m) {
    if (m->version != (sizeof(*m) | 2 << 24)) return VERSION_MISMATCH;
    m->total = 100; m->reserved = 10; m->free = 50; m->used = 40;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *list) {
    unsigned room = *count;
    *count = 2;
    if (room < 2 || !list) return INSUFFICIENT_SIZE;
    list[0].pid = 11; list[1].pid = 21;
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(device *d, unsigned *count, process *list) { *count = 0; return SUCCESS; }

int nvmlDeviceGetProcessUtilization(device *d, work *list, unsigned *count, unsigned long long since) {
    *count = since < 6 ? 2 : 0;
    if (!*count) return SUCCESS;
    if (!list) return INSUFFICIENT_SIZE;
    list[0] = (work){11, 5, 20}; list[1] = (work){21, 6, 17};
    return SUCCESS;
}

int nvmlGpmQueryDeviceSupport(device *d, unsigned *support) { support[1] = 1; return support[0] != 1; }
int nvmlGpmSampleAlloc(sample **s) { *s = calloc(1, sizeof(sample)); return SUCCESS; }
int nvmlGpmSampleFree(sample *s) { free(s); return SUCCESS; }
int nvmlGpmSampleGet(device *d, sample *s) { return measured(s); }
int nvmlGpmMigSampleGet(device *d, unsigned gi, sample *s) { return gi == 9 ? measured(s) : INVALID_ARGUMENT; }

int nvmlGpmMetricsGet(question *q) { /* 10 % by metric number, and no tensor cores */
    if (q->version != 1 || q->count != 5) return VERSION_MISMATCH;
    if (q->second->at <= q->first->at) return INVALID_ARGUMENT;
    for (metric *m = q->metrics; m < q->metrics + q->count; m++) {
        m->result = m->id == 5 ? NOT_SUPPORTED : SUCCESS;
        m->value = 10.0 * m->id;
    }
    return SUCCESS;
}

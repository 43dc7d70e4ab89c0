#include "report.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

namespace expert_cache {

namespace {

constexpr size_t kMostClosed = 32;

std::string quoted(const std::string & text) {
    std::string out = "\"";
    for (const char c : text) {
        char code[8];
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
            out += code;
        } else {
            out += c;
        }
    }
    return out + '"';
}

struct Field {
    const char * name;
    std::atomic<uint64_t> Counters::*counter;
};

constexpr Field kFields[] = {
    {"hits", &Counters::hits},
    {"misses", &Counters::misses},
    {"reloads", &Counters::reloads},
    {"evictions", &Counters::evictions},
    {"bytes_read", &Counters::bytes_read},
    {"reads", &Counters::reads},
    {"read_ns", &Counters::read_ns},
    {"read_errors", &Counters::read_errors},
    {"waits", &Counters::waits},
    {"wait_ns", &Counters::wait_ns},
    {"first_wait_ns", &Counters::first_wait_ns},
    {"warmups", &Counters::warmups},
};

std::string number(const char * name, uint64_t n) { return quoted(name) + ": " + std::to_string(n); }

std::string totals(const Model & model) {
    std::string out;
    for (const Field & field : kFields) {
        uint64_t sum = 0;
        for (const auto & layer : model.layers) {
            sum += value(layer->counters.*field.counter);
        }
        out += ", " + number(field.name, sum);
    }
    return out;
}

std::string layer_json(const Layer & layer) {
    std::string out = "{" + number("layer", static_cast<uint64_t>(layer.index)) + ", " +
                      number("experts", static_cast<uint64_t>(layer.experts)) + ", " +
                      number("unit_bytes", layer.unit_bytes);
    for (const Field & field : kFields) {
        out += ", " + number(field.name, value(layer.counters.*field.counter));
    }
    return out + "}";
}

int signal_fd = -1;

void on_usr1(int) {
    const int saved = errno;
    const uint64_t one = 1;
    if (write(signal_fd, &one, sizeof one) < 0) {
        // The counter is full: a report is due anyway.
    }
    errno = saved;
}

}  // namespace

std::string model_json(const Model & model, const char * state) {
    std::string out = "{\"name\": " + quoted(model.name) + ", \"state\": " + quoted(state) + ", " +
                      number("units", model.unit_count()) + ", " +
                      number("experts_used", static_cast<uint64_t>(model.experts_used)) + ", " +
                      number("token_units", model.token_units()) + ", " + number("token_bytes", model.token_bytes()) +
                      ", " + number("slots", model.memory.slots()) + totals(model) + ", \"layers\": [";
    for (size_t i = 0; i < model.layers.size(); ++i) {
        out += (i == 0 ? "\n    " : ",\n    ") + layer_json(*model.layers[i]);
    }
    return out + "]}";
}

std::string refused_json(const std::string & name, const std::string & why) {
    return "{\"name\": " + quoted(name) + ", \"state\": \"not served\", \"why\": " + quoted(why) + "}";
}

std::string cache_json(const Config & config, uint64_t live_bytes, const std::vector<std::unique_ptr<Model>> & models,
                       const std::vector<std::string> & closed) {
    std::string out = "{\"version\": 1, " + number("pid", static_cast<uint64_t>(getpid())) + ", " +
                      number("budget_bytes", config.budget_bytes) + ", " + number("live_bytes", live_bytes) + ", " +
                      number("readers", static_cast<uint64_t>(config.readers)) + ", " +
                      number("chunk_bytes", config.chunk_bytes) + ",\n \"models\": [";
    const char * comma = "\n  ";
    for (const std::string & json : closed) {
        out += comma + json;
        comma = ",\n  ";
    }
    for (const auto & model : models) {
        out += comma + model_json(*model, "served");
        comma = ",\n  ";
    }
    return out + "]}\n";
}

void remember(std::vector<std::string> * closed, std::string json) {
    closed->push_back(std::move(json));
    if (closed->size() > kMostClosed) {
        closed->erase(closed->begin());
    }
}

bool write_file(const std::string & path, const std::string & text, std::string * why) {
    const std::string partial = path + ".partial." + std::to_string(getpid());
    FILE * file = fopen(partial.c_str(), "we");
    bool ok = file != nullptr && fwrite(text.data(), 1, text.size(), file) == text.size();
    ok = file != nullptr && fclose(file) == 0 && ok;
    if (!ok || rename(partial.c_str(), path.c_str()) != 0) {
        *why = "cannot write " + path + ": " + strerror(errno);
        unlink(partial.c_str());
        return false;
    }
    return true;
}

bool on_signal(void (*write)()) {
    struct sigaction now;
    if (sigaction(SIGUSR1, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) {
        return false;
    }
    signal_fd = eventfd(0, EFD_CLOEXEC);
    if (signal_fd < 0) {
        return false;
    }
    std::thread([write] {
        uint64_t count = 0;
        for (;;) {
            const ssize_t got = read(signal_fd, &count, sizeof count);
            if (got == sizeof count) {
                write();
            } else if (got >= 0 || errno != EINTR) {
                return;
            }
        }
    }).detach();
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_handler = on_usr1;
    ours.sa_flags = SA_RESTART;
    return sigaction(SIGUSR1, &ours, nullptr) == 0;
}

}  // namespace expert_cache

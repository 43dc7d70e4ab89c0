// Drives the cache without llama.cpp: cache_driver SCENARIO SEED ROUNDS. Exit 0 and a line of JSON, or 1 and what broke.
#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>

#include "scene.h"

namespace driver {
namespace {

struct Totals {
    uint64_t hits = 0, misses = 0, reloads = 0, evictions = 0, bytes = 0, errors = 0;
};

Totals totals(const Model & model) {
    Totals t;
    for (const auto & layer : model.layers) {
        const auto & c = layer->counters;
        t.hits += c.hits;
        t.misses += c.misses;
        t.reloads += c.reloads;
        t.evictions += c.evictions;
        t.bytes += c.bytes_read;
        t.errors += c.read_errors;
    }
    return t;
}

Config config_of(uint64_t budget, Random & random) {
    Config config;
    config.budget_bytes = budget;
    config.readers = 1 + static_cast<int>(below(random, 8));
    config.chunk_bytes = 4096 * (1 + below(random, 8));
    config.small_budget = true;
    return config;
}

Shape some_shape(Random & random) {
    Shape shape;
    shape.layers = 1 + static_cast<int>(below(random, 4));
    shape.experts = 4 + static_cast<int>(below(random, 28));
    shape.used = 1 + static_cast<int>(below(random, 4));
    shape.merged = below(random, 2) == 0;
    shape.odd = below(random, 3) != 0;
    shape.mixed_sizes = below(random, 2) == 0;
    shape.slice = 100 + 8 * below(random, 4000);
    return shape;
}

uint64_t most_unit(const Scene & scene, const Shape & shape) {
    Model probe;
    std::string why;
    check(build_layers(&probe, scene.specs, &why), why);
    (void) shape;
    return probe.largest_unit_bytes();
}

// Hits, misses, evictions and the live bytes equal those of the plain rule after every pass, with any readers and threads.
void lru(uint64_t seed, int rounds) {
    Random random(seed);
    uint64_t passes = 0;
    for (int round = 0; round < rounds; ++round) {
        const Shape shape = some_shape(random);
        const Scene scene = make_scene(shape, seed + static_cast<uint64_t>(round), random);
        const int most = shape.used + static_cast<int>(below(random, static_cast<uint64_t>(shape.experts - shape.used + 1)));
        const uint64_t unit = most_unit(scene, shape);
        const uint64_t budget = unit * (static_cast<uint64_t>(most) + below(random, 3 * static_cast<uint64_t>(shape.experts)));
        Faults faults;
        faults.slow_percent = below(random, 2) == 0 ? 0 : 20;
        faults.short_percent = 10;
        Cache cache(config_of(budget, random), quiet);
        Model * model = cache.add(make_model(scene, shape, &faults, random()), scene.specs);
        check(model != nullptr, "the model was refused");
        PlainLru plain(budget);
        Team team(cache, 1 + static_cast<int>(below(random, 4)));
        for (int token = 0; token < 30; ++token, ++passes) {
            const int distinct = 1 + static_cast<int>(below(random, static_cast<uint64_t>(most)));
            const auto steps = pass_over(scene, *model, distinct, random);
            check(team.run(steps) == steps.size(), "a read failed");
            for (size_t s = 0; s < steps.size(); s += scene.kinds.size()) {
                plain.pass(steps[s].layer->index, steps[s].layer->unit_bytes, steps[s].rows);
            }
            const Totals t = totals(*model);
            check(t.hits == plain.hits && t.misses == plain.misses && t.evictions == plain.evictions,
                  "counters " + std::to_string(t.hits) + "/" + std::to_string(t.misses) + "/" +
                      std::to_string(t.evictions) + ", plain LRU " + std::to_string(plain.hits) + "/" +
                      std::to_string(plain.misses) + "/" + std::to_string(plain.evictions));
            check(t.reloads == 0, "a slice was read twice within a token that fits");
            check(cache.live_bytes() == plain.live(), "live bytes differ from the plain LRU's");
            check(cache.backed_bytes() <= budget, "more memory than the budget");
        }
        cache.remove(model);
    }
    printf("{\"scenario\": \"lru\", \"passes\": %" PRIu64 "}\n", passes);
}

// Several contexts on several models at once, budgets from one unit up, models coming and going; bytes always right.
void stress(uint64_t seed, int rounds) {
    Random random(seed);
    std::atomic<uint64_t> steps_done{0};
    for (int round = 0; round < rounds; ++round) {
        Faults faults;
        faults.slow_percent = static_cast<int>(below(random, 40));
        faults.short_percent = static_cast<int>(below(random, 30));
        faults.interrupted_percent = static_cast<int>(below(random, 10));
        const int models = 1 + static_cast<int>(below(random, 3));
        std::vector<Shape> shapes;
        std::vector<Scene> scenes;
        uint64_t least = 0;
        for (int m = 0; m < models; ++m) {
            shapes.push_back(some_shape(random));
            scenes.push_back(make_scene(shapes.back(), seed * 1000 + static_cast<uint64_t>(round * 10 + m), random));
            least = std::max(least, most_unit(scenes.back(), shapes.back()) * static_cast<uint64_t>(shapes.back().used));
        }
        const uint64_t budget = below(random, 3) == 0 ? least : least + below(random, 4 * least);
        Cache cache(config_of(budget, random), quiet);
        std::vector<std::thread> users;
        for (int m = 0; m < models; ++m) {
            const uint64_t user_seed = random();
            users.emplace_back([&, m, user_seed] {
                Random mine(user_seed);
                for (int life = 0; life < 2; ++life) {
                    Model * model = cache.add(make_model(scenes[m], shapes[m], &faults, mine()), scenes[m].specs);
                    check(model != nullptr, "the model was refused");
                    std::vector<std::thread> contexts;
                    for (int c = 0; c < 2; ++c) {
                        const uint64_t context_seed = mine();
                        contexts.emplace_back([&, context_seed] {
                            Random own(context_seed);
                            Team team(cache, 1 + static_cast<int>(below(own, 4)));
                            for (int token = 0; token < 12; ++token) {
                                const int distinct = below(own, 3) == 0
                                    ? 1 + static_cast<int>(below(own, static_cast<uint64_t>(shapes[m].experts)))
                                    : shapes[m].used;
                                const auto steps = pass_over(scenes[m], *model, distinct, own);
                                check(team.run(steps) == steps.size(), "a read failed");
                                steps_done += steps.size();
                            }
                        });
                    }
                    for (std::thread & context : contexts) {
                        context.join();
                    }
                    check(!cache.json().empty(), "no counters");
                    cache.remove(model);
                }
            });
        }
        for (std::thread & user : users) {
            user.join();
        }
        check(cache.live_bytes() == 0, "slots are in use although every model is gone");
        check(cache.backed_bytes() == 0, "memory is held although every model is gone");
    }
    printf("{\"scenario\": \"stress\", \"operations\": %" PRIu64 "}\n", steps_done.load());
}

// Reads fail: the operation says so, nothing hangs, and once the device is well again everything is right.
void failing(uint64_t seed, int rounds) {
    Random random(seed);
    uint64_t failures = 0, after = 0, errors = 0;
    for (int round = 0; round < rounds; ++round) {
        const Shape shape = some_shape(random);
        const Scene scene = make_scene(shape, seed + static_cast<uint64_t>(round), random);
        const uint64_t least = most_unit(scene, shape) * static_cast<uint64_t>(shape.used);
        Faults faults;
        faults.slow_percent = 20;
        Cache cache(config_of(least + below(random, 3 * least), random), quiet);
        Model * model = cache.add(make_model(scene, shape, &faults, random()), scene.specs);
        check(model != nullptr, "the model was refused");
        Team team(cache, 1 + static_cast<int>(below(random, 4)));
        for (int token = 0; token < 20; ++token) {
            faults.failing_percent = token % 2 == 0 ? 5 + static_cast<int>(below(random, 60)) : 0;
            const int distinct = 1 + static_cast<int>(below(random, static_cast<uint64_t>(shape.experts)));
            const auto steps = pass_over(scene, *model, distinct, random);
            const size_t done = team.run(steps);
            failures += done < steps.size() ? 1 : 0;
            if (token % 2 == 0) {
                // What was still under way when the operation gave up belongs to the bad time.
                while (model->loads.load() != 0) {
                    std::this_thread::sleep_for(std::chrono::microseconds(50));
                }
            } else {
                check(done == steps.size(), "a read failed on a device that is well");
                ++after;
            }
        }
        errors += totals(*model).errors;
        cache.remove(model);
        check(cache.live_bytes() == 0, "slots are in use although the model is gone");
    }
    check(failures > 0 && errors >= failures, "no read failed, so nothing was tested");
    printf("{\"scenario\": \"failing\", \"failed_passes\": %" PRIu64 ", \"good_passes_after\": %" PRIu64 "}\n", failures,
           after);
}

// The real source on a real file with O_DIRECT, slices at any offset, the last one ending with the file.
void files(uint64_t seed, const char * folder) {
    Random random(seed);
    Shape shape;
    shape.slice = 150008;
    Scene scene = make_scene(shape, seed, random);
    std::unique_ptr<expert_cache::DirectFiles> source(new expert_cache::DirectFiles);
    for (int file = 0; file < 2; ++file) {
        uint64_t bytes = 8;
        for (const TensorSpec & spec : scene.specs) {
            const uint64_t end = spec.offset + spec.slice_bytes * static_cast<uint64_t>(spec.experts);
            bytes = spec.file == file ? std::max(bytes, end) : bytes;
        }
        const std::string path = std::string(folder) + "/file-" + std::to_string(file);
        std::vector<char> content((bytes + 7) / 8 * 8);
        fill(scene.salt, file, 0, content.data(), content.size());
        const int fd = open(path.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0600);
        check(fd >= 0 && write(fd, content.data(), bytes) == static_cast<ssize_t>(bytes) && fsync(fd) == 0, "write");
        std::string why;
        check(source->add(fd, &why) == file, why);
        close(fd);
    }
    Config config = config_of(0, random);
    config.budget_bytes = 5 * most_unit(scene, shape);
    config.chunk_bytes = 128 * 1024;
    Cache cache(config, quiet);
    std::unique_ptr<Model> made(new Model);
    made->name = "files";
    made->experts_used = shape.used;
    made->source = std::move(source);
    Model * model = cache.add(std::move(made), scene.specs);
    check(model != nullptr, "the model was refused");
    Team team(cache, 3);
    for (int token = 0; token < 40; ++token) {
        const auto steps = pass_over(scene, *model, token % 4 == 0 ? shape.experts : shape.used, random);
        check(team.run(steps) == steps.size(), "a read failed");
    }
    printf("{\"scenario\": \"files\", \"bytes_read\": %" PRIu64 "}\n", totals(*model).bytes);
    cache.remove(model);
}

// The way of a hit: nanoseconds an operation over experts that are all there, by `contexts` at once.
void hits(uint64_t seed, int contexts) {
    Random random(seed);
    Shape shape;
    shape.layers = 8;
    shape.experts = 64;
    shape.used = 8;
    const Scene scene = make_scene(shape, seed, random);
    Faults faults;
    Config config;
    config.budget_bytes = 1ULL << 30;
    Cache cache(config, quiet);
    Model * model = cache.add(make_model(scene, shape, &faults, seed), scene.specs);
    check(model != nullptr, "the model was refused");
    check(Team(cache, 1).run(pass_over(scene, *model, 64, random)) > 0, "a read failed");
    std::vector<std::thread> users;
    std::atomic<uint64_t> ns{0};
    const int repeats = 20000;
    for (int c = 0; c < contexts; ++c) {
        users.emplace_back([&, c] {
            std::vector<int64_t> rows(64, 0);
            for (size_t e = 0; e < 8; ++e) {
                rows[e * 7] = 1;
            }
            Layer & layer = *model->layers[static_cast<size_t>(c)];
            const auto start = std::chrono::steady_clock::now();
            for (int i = 0; i < repeats; ++i) {
                expert_cache::Operation * op = cache.begin(layer, scene.kinds[static_cast<size_t>(i) % 3], rows.data(), 1);
                expert_cache_cursor cursor = {};
                cursor.current = -1;
                const char * data = nullptr;
                while (cache.next(op, &cursor, &data) >= 0) {
                }
            }
            ns += static_cast<uint64_t>((std::chrono::steady_clock::now() - start).count());
        });
    }
    for (std::thread & user : users) {
        user.join();
    }
    printf("{\"scenario\": \"hits\", \"contexts\": %d, \"ns_per_operation\": %.0f}\n", contexts,
           static_cast<double>(ns) / contexts / repeats);
    cache.remove(model);
}

uint64_t resident_bytes() {
    unsigned long pages = 0;
    FILE * file = fopen("/proc/self/statm", "r");
    check(file != nullptr && fscanf(file, "%*u %lu", &pages) == 1, "/proc/self/statm");
    fclose(file);
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// The process never holds more than the budget, though units have four sizes and push each other out.
void memory(uint64_t seed, int rounds) {
    Random random(seed);
    Shape shape;
    shape.layers = 4;
    shape.experts = 64;
    shape.mixed_sizes = true;
    shape.slice = 400000;
    Scene scene = make_scene(shape, seed, random);
    Faults faults;
    Config config;
    config.budget_bytes = 96 << 20;
    const uint64_t before = resident_bytes();
    Cache cache(config, quiet);
    Model * model = cache.add(make_model(scene, shape, &faults, seed), scene.specs);
    check(model != nullptr, "the model was refused");
    uint64_t most = 0;
    for (int i = 0; i < rounds; ++i) {
        Team(cache, 2).run(pass_over(scene, *model, i % 5 == 0 ? 20 : shape.used, random));
        most = std::max(most, resident_bytes() - before);
        check(cache.backed_bytes() <= config.budget_bytes, "more memory than the budget");
    }
    check(totals(*model).evictions > 100, "nothing was evicted, so nothing was tested");
    // Threads' stacks and the bookkeeping come on top.
    check(most <= config.budget_bytes + (4 << 20), "resident " + std::to_string(most >> 20) + " MiB over a budget of 96");
    printf("{\"scenario\": \"memory\", \"most_resident_mib\": %" PRIu64 "}\n", most >> 20);
    cache.remove(model);
}

// A warm-up run asks for every expert of every layer, and gets an operation without entries.
void warmup(uint64_t seed, int rounds) {
    Random random(seed);
    const Shape shape;
    const Scene scene = make_scene(shape, seed, random);
    Faults faults;
    Cache cache(config_of(100 << 20, random), quiet);
    Model * model = cache.add(make_model(scene, shape, &faults, seed), scene.specs);
    check(model != nullptr, "the model was refused");
    for (int i = 0; i < rounds; ++i) {
        expert_cache::Operation * op = cache.begin_warmup(*model->layers[0], 1);
        expert_cache_cursor cursor = {};
        cursor.current = -1;
        const char * data = nullptr;
        check(cache.next(op, &cursor, &data) == Cache::kEnd, "a warm-up was given an expert");
    }
    const auto & counters = model->layers[0]->counters;
    printf("{\"scenario\": \"warmup\", \"warmups\": %" PRIu64 ", \"reads\": %" PRIu64 "}\n", counters.warmups.load(),
           counters.reads.load());
    cache.remove(model);
}

}  // namespace
}  // namespace driver

int main(int argc, char ** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: cache_driver lru|stress|failing|files|memory|warmup|hits SEED ROUNDS|FOLDER|CONTEXTS\n");
        return 2;
    }
    const std::string scenario = argv[1];
    const uint64_t seed = strtoull(argv[2], nullptr, 10);
    if (scenario == "lru") {
        driver::lru(seed, atoi(argv[3]));
    } else if (scenario == "stress") {
        driver::stress(seed, atoi(argv[3]));
    } else if (scenario == "failing") {
        driver::failing(seed, atoi(argv[3]));
    } else if (scenario == "files") {
        driver::files(seed, argv[3]);
    } else if (scenario == "memory") {
        driver::memory(seed, atoi(argv[3]));
    } else if (scenario == "warmup") {
        driver::warmup(seed, atoi(argv[3]));
    } else if (scenario == "hits") {
        driver::hits(seed, atoi(argv[3]));
    } else {
        fprintf(stderr, "no scenario %s\n", argv[1]);
        return 2;
    }
    return 0;
}

// The counters as JSON, and when they are written: at exit, and on SIGUSR1.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config.h"
#include "model.h"

namespace expert_cache {

// One object: totals of the model, then its layers.
std::string model_json(const Model & model, const char * state);
std::string refused_json(const std::string & name, const std::string & why);
std::string cache_json(const Config & config, uint64_t live_bytes, const std::vector<std::unique_ptr<Model>> & models,
                       const std::vector<std::string> & closed);

// Keeps the newest of what was said about models that are gone.
void remember(std::vector<std::string> * closed, std::string json);

// Replaces `path` in one step, so that a reader never sees half a file. False with `why`.
bool write_file(const std::string & path, const std::string & text, std::string * why);

// Calls `write` (from a thread of its own) whenever the process gets SIGUSR1. False: the signal is already taken.
bool on_signal(void (*write)());

}  // namespace expert_cache

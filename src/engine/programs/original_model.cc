#include "engine/programs/original_model.h"

#include "base/status.h"

namespace chairlift {

StatusOr<Executable*> OriginalModel::Get() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (executable_ == nullptr && failed_.ok()) {
    StatusOr<std::unique_ptr<Executable>> made = Executable::Create(std::move(graph_), options_);
    graph_ = Graph();
    if (!made.ok()) failed_ = made.status();
    if (made.ok()) executable_ = *std::move(made);
  }
  if (!failed_.ok()) return Status(failed_.code(), failed_.message());  // a separate copy
  return executable_.get();
}

}  // namespace chairlift

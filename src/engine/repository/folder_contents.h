// What a folder has in place of a model, for errors.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_FOLDER_CONTENTS_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_FOLDER_CONTENTS_H_

#include <filesystem>
#include <string>

namespace chairlift {

// The end of an error about a folder without a model: what the folder has, and what would work.
// "; it has models/a/1/a.onnx: serve that file, or …", "; it has model.safetensors: …", "; it is
// empty". Looks at a few hundred entries at most.
std::string WhatFolderHas(const std::filesystem::path& folder);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_FOLDER_CONTENTS_H_

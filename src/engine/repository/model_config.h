// Reads a model.yaml.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_MODEL_CONFIG_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_MODEL_CONFIG_H_

#include <string>
#include <vector>

#include "base/setting_info.h"
#include "base/yaml_value.h"
#include "chairlift/engine.h"

namespace chairlift {

// The settings of a model.yaml except `cells` and `unfold` (cell_manifest.h), `steps`
// (pipeline_config.h), `python` (function_config.h) and `versions` (version_policy.h).
StatusOr<ModelConfig> ReadModelConfig(const YamlValue& settings);
// The documentation of these settings; and of those of folders and versions.
std::vector<SettingInfo> SettingInfos();
std::vector<SettingInfo> RepositorySettingInfos();
// The names that ApplySetting() knows.
std::vector<std::string> SettingNames();
// Sets one by name from its value as YAML. Returns whether that setting exists.
StatusOr<bool> ApplySetting(const std::string& name, const std::string& value, ModelConfig& config);
// InvalidArgument has the setting that is out of range or refers to something that does not exist.
Status CheckConfig(const ModelConfig& config);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_MODEL_CONFIG_H_

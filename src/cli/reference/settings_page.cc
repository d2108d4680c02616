// Every setting of a model.yaml, from the tables that read it.
#include <fmt/format.h>

#include "cli/reference/pages.h"
#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/process/function_config.h"
#include "engine/repository/model_config.h"
#include "engine/repository/text_model.h"

namespace chairlift::reference {
namespace {

std::string SettingRows(const std::vector<SettingInfo>& infos) {
  std::string rows = "\n| setting | takes | default | meaning |\n|---|---|---|---|\n";
  for (const SettingInfo& info : infos) {
    rows += fmt::format("| `{}` | {} | {} | {} |\n", info.name, TableCell(info.takes),
                        info.default_value.empty() ? "" : fmt::format("`{}`", info.default_value),
                        TableCell(info.about));
  }
  return rows;
}

}  // namespace

std::string SettingsPage() {
  std::string page =
      "# model.yaml\n\n"
      "Every setting of a model's `model.yaml`. This page is generated from the program: `make "
      "reference` writes it again.\n\n"
      "```yaml\n# models/resnet/model.yaml\nmax_batch_size: 16\nqueue_delay_us: 500\nversions: "
      "all\n```\n\n"
      "No setting is required: what is absent follows from the model. The file lies in the model's "
      "folder\n([repositories.md](repositories.md)). A setting that does not exist, or that the "
      "model or its policy does not use, is\nrefused by name. On the command line, `chairlift "
      "serve "
      "model.onnx --set max_batch_size=16` sets one; in Python,\n"
      "`chairlift.load(\"model.onnx\", max_batch_size=16)`.\n\n"
      "Names that end in `_us` are microseconds, in `_bytes` bytes.\n\n";
  page += "## ONNX models\n" + SettingRows(SettingInfos());
  page += "\n## Folders and cells\n" + SettingRows(RepositorySettingInfos());
  page += "\n## Text inputs\n\n[embeddings.md](../guides/embeddings.md) explains them.\n" +
          SettingRows(TextSettingInfos());
  page += "\n## Python models\n\n[python-models.md](../guides/python-models.md) explains them.\n" +
          SettingRows(FunctionSettingInfos());
  page +=
      "\n## Pipelines\n\n[pipelines.md](../guides/pipelines.md) explains them, and names the "
      "settings of all models that a pipeline takes.\n" +
      SettingRows(PipelineSettingInfos());
  return page;
}

}  // namespace chairlift::reference

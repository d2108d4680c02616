// Models by name and version: files, folders, states, replacement.
#include <gmock/gmock.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "chairlift/engine.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using testing::DoublingModel;
using ::testing::ElementsAre;
using testing::FixedModel;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempFolder;
using testing::WriteFile;

std::string Text(const Status& status) { return std::string(status.message()); }

class RepositoryTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  std::unique_ptr<Engine> engine_ = *Engine::Create({.workers = 1});

  void Put(const std::string& name, const std::string& version, const std::string& bytes) {
    WriteFile(folder_ / name / version / "model.onnx", bytes);
  }
  StatusOr<InferResponse> Ask(const std::string& model, const std::string& version = "") {
    InferRequest request;
    request.model = model;
    request.version = version;
    request.inputs = {{"x", Tensor::Of<float>({1, 4}, {1, 2, 3, 4})}};
    return engine_->Infer(std::move(request));
  }
  // "name/version state" of all.
  std::vector<std::string> States() {
    static constexpr const char* kNames[] = {"loading", "ready", "unloading", "unavailable"};
    std::vector<std::string> states;
    for (const ModelIndexEntry& e : engine_->Index()) {
      states.push_back(e.name + "/" + e.version + " " + kNames[static_cast<int>(e.state)]);
    }
    return states;
  }
};

TEST_F(RepositoryTest, AFolderIsListedBeforeItIsLoaded) {
  Put("a", "1", DoublingModel().Bytes());
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  EXPECT_THAT(States(), ElementsAre("a/ unavailable"));
  EXPECT_FALSE(engine_->ModelReady("a"));
  EXPECT_EQ(Ask("a").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RepositoryTest, TheTextModelsOfAModelThatLoadsMayCome) {
  absl::Notification loading, asked;
  engine_ =
      *Engine::Create({.workers = 1, .serve_texts = true, .on_load = [&](const LoadProgress&) {
                         if (loading.HasBeenNotified()) return;
                         loading.Notify();
                         asked.WaitForNotification();
                       }});
  Put("a", "1", DoublingModel().Bytes());
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  std::thread load([&] { EXPECT_TRUE(engine_->LoadFromRepository("a").ok()); });
  loading.WaitForNotification();
  const auto code = [&](const char* name) { return engine_->Metadata(name).status().code(); };
  for (const char* name : {"a", "a/embed", "a/rerank", "a/predict", "a/complete", "a/tokenizer"}) {
    EXPECT_EQ(code(name), absl::StatusCode::kUnavailable) << name;
  }
  for (const char* name : {"a/other", "b", "b/embed"}) {
    EXPECT_EQ(code(name), absl::StatusCode::kNotFound) << name;
  }
  asked.Notify();
  load.join();
  EXPECT_EQ(code("a"), absl::StatusCode::kOk);
  EXPECT_EQ(code("a/embed"), absl::StatusCode::kNotFound);  // it has no tokenizer
}

TEST_F(RepositoryTest, OnlyTheLatestVersionIsServedUnlessTheSettingsSayMore) {
  for (const char* version : {"1", "9", "10"}) Put("a", version, DoublingModel().Bytes());
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  ASSERT_TRUE(engine_->LoadFromRepository("a").ok());
  EXPECT_THAT(States(), ElementsAre("a/10 ready"));
  WriteFile(folder_ / "a" / "model.yaml", "versions: [1, 9]\n");
  ASSERT_TRUE(engine_->LoadFromRepository("a").ok());
  EXPECT_THAT(States(), ElementsAre("a/1 ready", "a/9 ready", "a/10 unavailable"));
  WriteFile(folder_ / "a" / "model.yaml", "versions: [2]\n");
  EXPECT_THAT(Text(engine_->LoadFromRepository("a")),
              AllOf(HasSubstr("version 2"), HasSubstr("1, 9, 10")));
  EXPECT_TRUE(Ask("a").ok());
}

TEST_F(RepositoryTest, LoadsEveryVersionAndAnswersWithTheLatest) {
  WriteFile(folder_ / "a" / "model.yaml", "versions: all\n");
  for (const char* version : {"1", "9", "10"}) Put("a", version, DoublingModel().Bytes());
  Put("a", "not-a-version", "x");
  WriteFile(folder_ / "a" / "11" / "other.onnx", "x");
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  const Status loaded = engine_->LoadFromRepository("a");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_THAT(States(), ElementsAre("a/1 ready", "a/9 ready", "a/10 ready"));
  EXPECT_EQ(Ask("a")->version, "10");
  EXPECT_EQ(Ask("a", "9")->version, "9");
  EXPECT_EQ(Ask("a", "2").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(engine_->Metadata("a")->versions, ElementsAre("1", "9", "10"));
}

TEST_F(RepositoryTest, TheConfigurationBesideTheVersionsIsUsed) {
  Put("a", "1", DoublingModel().Bytes());
  WriteFile(folder_ / "a" / "model.yaml", "max_batch_size: 5\nqueue_delay_us: 7\n");
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  ASSERT_TRUE(engine_->LoadFromRepository("a").ok());
  const StatusOr<ModelMetadata> metadata = engine_->Metadata("a");
  EXPECT_EQ(metadata->config.max_batch_size, 5);
  EXPECT_EQ(metadata->config.queue_delay_us, 7);
  EXPECT_EQ(metadata->config.policy, "window");
}

TEST_F(RepositoryTest, AWrongConfigurationRefusesTheModel) {
  Put("a", "1", DoublingModel().Bytes());
  WriteFile(folder_ / "a" / "model.yaml", "max_bach_size: 5\n");
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  EXPECT_THAT(Text(engine_->LoadFromRepository("a")),
              AllOf(HasSubstr("model.yaml"),
                    HasSubstr("no setting 'max_bach_size'; did you mean 'max_batch_size'?")));
}

TEST_F(RepositoryTest, ALinkToNoConfigurationRefusesTheModel) {
  Put("a", "1", DoublingModel().Bytes());
  std::filesystem::create_symlink("nowhere.yaml", folder_ / "a" / "model.yaml");
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  EXPECT_THAT(Text(engine_->LoadFromRepository("a")), HasSubstr("model.yaml"));
}

TEST_F(RepositoryTest, ABrokenVersionSaysWhyAndTheOthersServe) {
  WriteFile(folder_ / "a" / "model.yaml", "versions: all\n");
  Put("a", "1", DoublingModel().Bytes());
  Put("a", "2", "this is no model");
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  EXPECT_THAT(Text(engine_->LoadFromRepository("a")), HasSubstr("model 'a', version 2"));
  EXPECT_THAT(States(), ElementsAre("a/1 ready", "a/2 unavailable"));
  EXPECT_NE(engine_->Index()[1].reason, "");
  EXPECT_EQ(Ask("a")->version, "1");
  EXPECT_EQ(Ask("a", "2").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RepositoryTest, AModelMayLieInItsFolderWithoutAVersion) {
  const std::string bytes = DoublingModel().Bytes();
  WriteFile(folder_ / "flat/model.onnx", bytes);
  WriteFile(folder_ / "hub/onnx/model.onnx", bytes);
  WriteFile(folder_ / "hub/onnx/model_quantized.onnx", "not the chosen one");
  WriteFile(folder_ / "only/onnx/model_fp16.onnx", bytes);
  WriteFile(folder_ / "chosen/onnx/model_int8.onnx", bytes);
  WriteFile(folder_ / "chosen/onnx/model.onnx", "not the chosen one");
  WriteFile(folder_ / "chosen/model.yaml", "file: onnx/model_int8.onnx\n");
  WriteFile(folder_ / "version/3/onnx/model.onnx", bytes);
  // A link to a version of a volume, as Kubernetes has it.
  WriteFile(folder_ / "volume/..2026/model.onnx", bytes);
  std::filesystem::create_symlink("..2026", folder_ / "volume/..data");
  std::filesystem::create_symlink("..data/model.onnx", folder_ / "volume/model.onnx");
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  // The main branch's snapshot, if there are two.
  const std::string cached = "models--org--cached";
  WriteFile(folder_ / (cached + "/snapshots/aaaa/model.onnx"), "not the chosen one");
  WriteFile(folder_ / (cached + "/snapshots/bbbb/onnx/model.onnx"), bytes);
  WriteFile(folder_ / (cached + "/refs/main"), "bbbb\n");
  for (const char* name :
       {"flat", "hub", "only", "chosen", "version", "volume", "models--org--cached"}) {
    const Status loaded = engine_->LoadFromRepository(name);
    EXPECT_TRUE(loaded.ok()) << name << ": " << loaded;
    EXPECT_TRUE(Ask(name).ok()) << name;
  }
  EXPECT_THAT(States(), ElementsAre("chosen/1 ready", "flat/1 ready", "hub/1 ready",
                                    "models--org--cached/1 ready", "only/1 ready",
                                    "version/3 ready", "volume/1 ready"));
}

TEST_F(RepositoryTest, SeveralFilesNeedAChoice) {
  for (const char* file : {"model_int8.onnx", "model_fp16.onnx"}) {
    WriteFile(folder_ / "hub/onnx" / file, DoublingModel().Bytes());
  }
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  EXPECT_THAT(
      Text(engine_->LoadFromRepository("hub")),
      AllOf(HasSubstr("model_fp16.onnx"), HasSubstr("model_int8.onnx"), HasSubstr("set `file`")));
  for (const char* name : {"../hub/onnx/model_int8.onnx", "/hub/model.onnx", "onnx/"}) {
    WriteFile(folder_ / "hub/model.yaml", fmt::format("file: {}\n", name));
    EXPECT_THAT(Text(engine_->LoadFromRepository("hub")), HasSubstr("file is")) << name;
  }
  WriteFile(folder_ / "hub/model.yaml", "file: onnx/model.onnx\n");
  EXPECT_THAT(Text(engine_->LoadFromRepository("hub")), HasSubstr("onnx/model.onnx"));
}

TEST_F(RepositoryTest, AFolderWithoutVersionsIsListedWithTheReason) {
  WriteFile(folder_ / "bad" / "v1" / "model.onnx", DoublingModel().Bytes());
  std::filesystem::create_directories(folder_ / "nothing");
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  EXPECT_THAT(Text(engine_->LoadFromRepository("bad")),
              HasSubstr("versions are numbers: rename the folder v1, as 1"));
  EXPECT_THAT(Text(engine_->LoadFromRepository("nothing")), HasSubstr("it is empty"));
  ASSERT_THAT(States(), ElementsAre("bad/ unavailable", "nothing/ unavailable"));
  EXPECT_THAT(engine_->Index()[0].reason, HasSubstr("rename the folder v1"));
  EXPECT_THAT(Text(Ask("bad").status()), HasSubstr("rename the folder v1"));
}

TEST_F(RepositoryTest, AFailedWarmUpIsTheReasonInTheIndex) {
  Put("a", "1", DoublingModel().Bytes());
  WriteFile(folder_ / "a" / "config.pbtxt",
            "model_warmup { name: \"s\" inputs { key: \"other\" value { data_type: TYPE_FP32 "
            "dims: [ 4 ] zero_data: true } } }");
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  EXPECT_FALSE(engine_->LoadFromRepository("a").ok());
  ASSERT_THAT(States(), ElementsAre("a/1 unavailable"));
  EXPECT_THAT(engine_->Index()[0].reason,
              AllOf(HasSubstr("model_warmup 's'"), HasSubstr("'other'")));
}

TEST_F(RepositoryTest, AModelOfNoRepositoryCannotBeLoadedByName) {
  const std::string file = WriteFile(folder_ / "m.onnx", DoublingModel().Bytes());
  ASSERT_TRUE(engine_->LoadModel("a", file, {}).ok());
  EXPECT_THAT(Text(engine_->LoadFromRepository("a")),
              AllOf(HasSubstr("named on the command line"), HasSubstr("--model-repository")));
}

TEST_F(RepositoryTest, LoadingAgainTakesWhatIsThereNow) {
  WriteFile(folder_ / "a" / "model.yaml", "versions: all\n");
  Put("a", "1", DoublingModel().Bytes());
  Put("a", "2", DoublingModel().Bytes());
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  ASSERT_TRUE(engine_->LoadFromRepository("a").ok());
  std::filesystem::remove_all(folder_ / "a" / "2");
  Put("a", "1", FixedModel().Bytes());
  Put("a", "3", DoublingModel().Bytes());
  ASSERT_TRUE(engine_->LoadFromRepository("a").ok());
  EXPECT_THAT(States(), ElementsAre("a/1 ready", "a/2 unavailable", "a/3 ready"));
  EXPECT_THAT(engine_->Metadata("a", "1")->inputs[0].shape, ElementsAre(1, 2));
}

TEST_F(RepositoryTest, AFailedReplacementLeavesTheOldOneServing) {
  const std::string file = WriteFile(folder_ / "m.onnx", DoublingModel().Bytes());
  ASSERT_TRUE(engine_->LoadModel("a", file, {}).ok());
  WriteFile(folder_ / "m.onnx", "broken");
  EXPECT_FALSE(engine_->LoadModel("a", file, {}).ok());
  EXPECT_TRUE(Ask("a").ok());
  EXPECT_THAT(States(), ElementsAre("a/1 ready"));
}

TEST_F(RepositoryTest, UnloadingOneVersionLeavesTheOthers) {
  WriteFile(folder_ / "a" / "model.yaml", "versions: all\n");
  for (const char* version : {"1", "2"}) Put("a", version, DoublingModel().Bytes());
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  ASSERT_TRUE(engine_->LoadFromRepository("a").ok());
  EXPECT_TRUE(engine_->UnloadModel("a", "2").ok());
  EXPECT_EQ(Ask("a")->version, "1");
  EXPECT_TRUE(engine_->UnloadModel("a").ok());
  // The worker may still hold the model of the request just answered.
  while (States()[0] == "a/1 unloading") std::this_thread::yield();
  EXPECT_THAT(States(), ElementsAre("a/1 unavailable", "a/2 unavailable"));
  EXPECT_EQ(Ask("a").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_->UnloadModel("a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine_->UnloadModel("b").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(engine_->LoadFromRepository("a").ok());
  EXPECT_TRUE(Ask("a").ok());
}

TEST_F(RepositoryTest, NamesThatLeaveTheFolderAreRefused) {
  ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
  for (const char* name : {"..", ".", "../a", "a/b", "", ".hidden", "a\nb"}) {
    EXPECT_EQ(engine_->LoadFromRepository(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(engine_->LoadFromRepository("nobody").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine_->LoadModel("a", "file", {}, "one").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->AddRepository((folder_ / "none").string()).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(RepositoryTest, TheDiagnosisSaysHowAModelIsServed) {
  ASSERT_TRUE(
      engine_->LoadModel("a", WriteFile(folder_ / "a.onnx", DoublingModel().Bytes()), {}).ok());
  ASSERT_TRUE(
      engine_->LoadModel("b", WriteFile(folder_ / "b.onnx", FixedModel().Bytes()), {}).ok());
  EXPECT_EQ(engine_->Metadata("a")->diagnosis,
            "inputs share dimension 0 'batch'; every operator keeps rows apart; window policy, up "
            "to 32 rows");
  EXPECT_EQ(engine_->Metadata("b")->diagnosis,
            "dimension 0 of input 'x' is fixed to 1; requests run one by one");
  EXPECT_THAT(engine_->Metadata("a")->inputs[0].shape, ElementsAre(-1, 4));
  EXPECT_EQ(engine_->Metadata("a")->platform, "onnx_chairlift");
}

TEST_F(RepositoryTest, AnUnknownPolicyIsRefused) {
  const std::string file = WriteFile(folder_ / "a.onnx", DoublingModel().Bytes());
  EXPECT_THAT(Text(engine_->LoadModel("a", file, {.policy = "bus"})),
              AllOf(HasSubstr("'bus'"), HasSubstr("'none', 'window'")));
}

}  // namespace
}  // namespace chairlift

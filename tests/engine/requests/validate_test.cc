// Requests that fit a model, and what is said of those that do not.
#include "engine/requests/validate.h"

#include <gmock/gmock.h>

#include <functional>

namespace chairlift {
namespace validate_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SymbolicShape Dims(std::vector<Dim> dims) { return SymbolicShape(std::move(dims)); }
const Dim kBatch = Dim::Symbol("batch");
const Dim kSeq = Dim::Symbol("seq");

Signature TwoInputs(bool batches = true) {
  Signature s;
  s.inputs = {{"ids", DType::kInt64, Dims({kBatch, kSeq})},
              {"scale", DType::kFloat, Dims({kBatch, kSeq, 3})}};
  s.outputs = {{"y", DType::kFloat, Dims({kBatch})}, {"z", DType::kFloat, Dims({kBatch})}};
  s.batches = batches;
  return s;
}

Tensor Ids(const Shape& shape) { return Tensor::Allocate(DType::kInt64, shape); }
Tensor Floats(const Shape& shape) { return Tensor::Allocate(DType::kFloat, shape); }

const Tensor kAbsent;

InferRequest Fitting() {
  InferRequest request;
  request.inputs = {{"scale", Floats({2, 5, 3})}, {"ids", Ids({2, 5})}};
  return request;
}

TEST(SignatureTest, InputsComeInAnyOrderAndGoInTheModels) {
  const StatusOr<ValidatedRequest> fit = Validate(TwoInputs(), Fitting());
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_EQ(fit->inputs[0].dtype(), DType::kInt64);
  EXPECT_EQ(fit->inputs[1].dtype(), DType::kFloat);
  EXPECT_THAT(fit->outputs, ElementsAre(0, 1));
  EXPECT_EQ(fit->rows, 2);
}

TEST(SignatureTest, RequestsOfEqualInnerShapesShareAKey) {
  const Signature s = TwoInputs();
  InferRequest other = Fitting();
  other.inputs = {{"ids", Ids({7, 5})}, {"scale", Floats({7, 5, 3})}};
  InferRequest longer = Fitting();
  longer.inputs = {{"ids", Ids({2, 6})}, {"scale", Floats({2, 6, 3})}};
  EXPECT_EQ(Validate(s, Fitting())->key, Validate(s, other)->key);
  EXPECT_NE(Validate(s, Fitting())->key, Validate(s, longer)->key);
}

TEST(SignatureTest, TheKeyTellsWhereOneInputsShapeEnds) {
  Signature s;
  s.inputs = {{"a", DType::kFloat, SymbolicShape()}, {"b", DType::kFloat, SymbolicShape()}};
  s.outputs = {{"y", DType::kFloat, SymbolicShape()}};
  s.batches = true;
  InferRequest one;
  one.inputs = {{"a", Floats({1, 2})}, {"b", Floats({1, 2, 2})}};
  InferRequest two;
  two.inputs = {{"a", Floats({1, 2, 2})}, {"b", Floats({1, 2})}};
  EXPECT_NE(Validate(s, one)->key, Validate(s, two)->key);
}

TEST(SignatureTest, WithoutBatchesRowsAreNotCounted) {
  const StatusOr<ValidatedRequest> fit = Validate(TwoInputs(false), Fitting());
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->rows, 1);
  EXPECT_TRUE(fit->key.empty());
}

TEST(SignatureTest, WantedOutputsKeepTheRequestsOrder) {
  InferRequest request = Fitting();
  request.outputs = {"z"};
  EXPECT_THAT(Validate(TwoInputs(), request)->outputs, ElementsAre(1));
  request.outputs = {"z", "y"};
  EXPECT_THAT(Validate(TwoInputs(), request)->outputs, ElementsAre(1, 0));
}

struct Misfit {
  std::string name;
  std::function<void(InferRequest&)> spoil;
  std::string message;
};
void PrintTo(const Misfit& m, std::ostream* out) { *out << m.name; }

class MisfitTest : public ::testing::TestWithParam<Misfit> {};

TEST_P(MisfitTest, IsRefusedWithWhatWouldBeRight) {
  Signature signature = TwoInputs();
  signature.max_rows = 8;
  InferRequest request = Fitting();
  GetParam().spoil(request);
  const Status status = Validate(signature, request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, MisfitTest,
    ::testing::Values(
        Misfit{"unknown input", [](InferRequest& r) { r.inputs[0].name = "scales"; },
               "no input 'scales'; did you mean 'scale'? (there are: 'ids', 'scale')"},
        Misfit{"missing input", [](InferRequest& r) { r.inputs.pop_back(); },
               "input 'ids' is missing; the model's inputs are: 'ids', 'scale'"},
        Misfit{"extra input",
               [](InferRequest& r) {
                 r.inputs.push_back({"more", Floats({1})});
               },
               "no input 'more'"},
        Misfit{"input given twice", [](InferRequest& r) { r.inputs.push_back(r.inputs[0]); },
               "input 'scale' is given twice"},
        Misfit{"no data", [](InferRequest& r) { r.inputs[0].tensor = kAbsent; },
               "input 'scale' has no data"},
        Misfit{"type",
               [](InferRequest& r) {
                 r.inputs[1].tensor = Tensor::Allocate(DType::kInt32, {2, 5});
               },
               "input 'ids' has element type INT32; the model takes INT64"},
        Misfit{"rank", [](InferRequest& r) { r.inputs[1].tensor = Ids({10}); },
               "has shape [10], of rank 1; the model takes [batch,seq], of rank 2"},
        Misfit{"fixed dimension",
               [](InferRequest& r) {
                 r.inputs[0].tensor = Floats({2, 5, 4});
               },
               "dimension 2 of input 'scale' is 4 (shape [2,5,4]); the model takes 3"},
        Misfit{"symbol",
               [](InferRequest& r) {
                 r.inputs[0].tensor = Floats({2, 6, 3});
               },
               "dimension 1 of input 'scale' is 6, but dimension 1 of input 'ids' is 5"},
        Misfit{"too many rows",
               [](InferRequest& r) {
                 r.inputs = {{"ids", Ids({9, 5})}, {"scale", Floats({9, 5, 3})}};
               },
               "has 9 rows; max_batch_size of the model is 8"},
        Misfit{"unknown output", [](InferRequest& r) { r.outputs = {"x"}; },
               "no output 'x' (there are: 'y', 'z')"},
        Misfit{"output asked for twice",
               [](InferRequest& r) {
                 r.outputs = {"y", "y"};
               },
               "output 'y' is asked for twice"}));

}  // namespace validate_test
}  // namespace chairlift

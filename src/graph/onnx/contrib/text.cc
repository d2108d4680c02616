// Rules for operators on strings.
#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {

Status Tokenizer(Maker& make) {
  return make.Become("Identity", {make.MakeOwn("Tokenizer", {make.in(0)}, make.attributes())});
}

}  // namespace chairlift::contrib

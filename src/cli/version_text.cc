#include "cli/version_text.h"

#include <absl/base/config.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <simdjson.h>

#include "base/version.h"
#include "device/cpu/isa.h"
#include "oneapi/dnnl/dnnl.h"

namespace chairlift {
namespace {

#define CHAIRLIFT_STRING(x) #x
#define CHAIRLIFT_VALUE_STRING(x) CHAIRLIFT_STRING(x)

}  // namespace

std::string VersionText() {
  const dnnl_version_t& dnnl = *dnnl_version();
  return fmt::format(
      "chairlift {} ({})\n"
      "compiler: {}\n"
      "instruction sets: baseline, avx2, avx512, amx; used on this machine: {}\n"
      "libraries: oneDNN {}.{}.{}, protobuf {}, Abseil {}, simdjson {}, fmt {}.{}.{}",
      Version(), SourceCommit(), Compiler(), CpuIsaName(ActiveCpuIsa()), dnnl.major, dnnl.minor,
      dnnl.patch, google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION),
      ABSL_LTS_RELEASE_VERSION, CHAIRLIFT_VALUE_STRING(SIMDJSON_VERSION), FMT_VERSION / 10000,
      FMT_VERSION / 100 % 100, FMT_VERSION % 100);
}

}  // namespace chairlift

// Extensions of Triton that clients look for and this server does not support: shared memory, and
// changing trace and log settings while it runs. Their state is shown (no region, no trace);
// changes are refused.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_ABSENT_EXTENSIONS_H_
#define CHAIRLIFT_SERVER_PROTOCOL_ABSENT_EXTENSIONS_H_

#include <string_view>
#include <vector>

#include "server/protocol/request.h"

namespace chairlift::protocol {

struct Setting {
  std::string_view name;
  Parameter value;
  bool list = false;  // shown as a list of this single value
};

std::vector<Setting> TraceSettings();
std::vector<Setting> LogSettings();
// kInvalidArgument if setting `name` is not already `wanted`.
Status CheckTraceSetting(std::string_view name, const Parameter& wanted);
Status CheckLogSetting(std::string_view name, const Parameter& wanted);

// The answers to a client that asks for the status of a region, or registers one. There are none to
// list or unregister.
Status NoRegion(std::string_view region);
Status RefuseRegion(std::string_view region);

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_ABSENT_EXTENSIONS_H_

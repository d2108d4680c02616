// The documentation of one setting of a model.yaml, for the help and the reference pages.
#ifndef CHAIRLIFT_BASE_SETTING_INFO_H_
#define CHAIRLIFT_BASE_SETTING_INFO_H_

#include <string>

namespace chairlift {

struct SettingInfo {
  std::string name;
  std::string takes;          // "a number of rows, 1 to 64"
  std::string default_value;  // empty: it follows from the model or is not set
  std::string about;          // sentences, without the last period
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_SETTING_INFO_H_

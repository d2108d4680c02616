// Stage plugins that are wrong. FOREIGN 1: of another version of the interface.
#include "chairlift/stage_plugin.h"

CHAIRLIFT_STAGE_PLUGIN(.abi = chairlift::StagePlugin::kAbi + FOREIGN)

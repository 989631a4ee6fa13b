#pragma once

#include <penstock/model/model_entry.h>

// Returns the entry for penstock::AddModel.
penstock::ModelEntry Mixer();

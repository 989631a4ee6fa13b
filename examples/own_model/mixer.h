#pragma once

#include <penstock/model/model_entry.h>

// The row that makes `mixer` known to Penstock.
penstock::ModelEntry Mixer();

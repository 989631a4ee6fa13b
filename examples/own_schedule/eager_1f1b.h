#pragma once

#include <penstock/schedule/catalog.h>

// The catalog entry of `eager-1f1b`.
penstock::Algorithm Eager1f1b();

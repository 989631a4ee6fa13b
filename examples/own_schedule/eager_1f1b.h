#pragma once

#include <penstock/schedule/catalog.h>

// The row that makes `eager-1f1b` known to Penstock.
penstock::Algorithm Eager1f1b();

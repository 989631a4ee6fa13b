// Plans for a model as tables.
#pragma once

#include "plan/search/search.h"
#include "report/table.h"

namespace penstock {

Table FrontTable(const PlanAnswer& answer);
// What the other plans lose by.
Table RunnersUpTable(const PlanAnswer& answer);

}  // namespace penstock

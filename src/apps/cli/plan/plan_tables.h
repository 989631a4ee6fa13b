// Plans for a model as tables.
#pragma once

#include <string>

#include "plan/search/search.h"
#include "plan/uncertainty/outlook.h"
#include "report/table.h"

namespace penstock {

Table FrontTable(const PlanAnswer& answer);
// What the other plans lose by.
Table RunnersUpTable(const PlanAnswer& answer);

// How often the choice and others win, what each constant would settle, and what to measure.
std::string OutlookText(const Outlook& outlook);

}  // namespace penstock

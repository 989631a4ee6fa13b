#!/usr/bin/env python3
"""Runs the referee over many schedules in one process.

    judge_cases.py CASES > VERDICTS

CASES has one JSON object per line: `csv` (the schedule's text) and the arguments of
referee.judge. VERDICTS has one verdict per line, in the same order.
"""
import json
import sys

import referee


def main():
    with open(sys.argv[1], encoding="utf-8") as cases:
        for line in cases:
            case = json.loads(line)
            try:
                verdict = referee.judge(referee.parse_csv(case.pop("csv")), **case)
            except referee.FormatError as error:
                verdict = {"valid": False, "violations": [str(error)]}
            print(json.dumps(verdict))


if __name__ == "__main__":
    main()

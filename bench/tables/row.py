"""Rows of tables of measured runs, and what readers of GPT-like runs share.

A reader returns the columns of `penstock calibrate` for one row: options of `penstock simulate` and what was measured. A column
`default:NAME` has what is known of the table and not of the row; options of the command line and fitted constants precede it.
"""
import math


class Refused(Exception):
    """The row cannot be expressed: which column prevents it, and why."""


class Row(dict):
    """Cells by column; columns that the table lacks are empty."""

    def __missing__(self, column):
        return ""

    def refuse(self, column, why):
        raise Refused(f"{column} '{self[column]}': {why}")

    def number(self, column, text=None):
        try:
            value = float(self[column] if text is None else text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self.refuse(column, "a number is needed")
        return value

    def positive(self, column):
        value = self.number(column)
        return value if value > 0 else self.refuse(column, "more than 0 is needed")

    def count(self, column, otherwise=None, text=None):
        """A whole number of at least 1; an empty cell has the value `otherwise`, if there is one."""
        if otherwise is not None and not self[column]:
            return otherwise
        value = self.number(column, text)  # tables that programs write have 4.0 for 4
        return int(value) if value >= 1 and value == int(value) else self.refuse(column, "a whole number of at least 1 is needed")

    def is_true(self, column):
        return self[column] == "true"

    def microbatches(self, column, micro_batch, replicas):
        """Of each replica, from the global batch."""
        batch = self.count(column)
        if batch % (micro_batch * replicas):
            self.refuse(column, f"{replicas} replicas of microbatches of {micro_batch} samples do not divide it")
        return batch // (micro_batch * replicas)

    def replicas(self, column, devices, ranks):
        return devices // ranks if devices % ranks == 0 else self.refuse(column, f"{ranks} ranks of a replica do not divide the devices")


def nodes_of(devices, devices_per_node):
    """A single node has only the devices that are used."""
    return f"1x{devices}" if devices <= devices_per_node else f"{devices // devices_per_node}x{devices_per_node}"


def unless_one(**ranks):
    """Numbers of ranks that have an effect."""
    return {name: count for name, count in ranks.items() if count != 1}


def joined(values):
    return ",".join(map(str, values))

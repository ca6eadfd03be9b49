"""A small comparison in the lab, from end to end: what its tests have in common."""

from comparekit.common import MeasureError, Progress


def judge(comparison, table, options, problems):
    """Measures, prints the table and the problems(results), a line each; returns the exit status."""
    try:
        results = comparison.run(options, Progress(1))
    except MeasureError as error:
        print(f"FAIL: {error}")
        return 1
    print(table.markdown(results))
    found = list(problems(results))
    print("".join(f"FAIL: {problem}\n" for problem in found), end="")
    return 1 if found else 0

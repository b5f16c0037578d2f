"""A Spark driver of its own: reads statements from its standard input, one in a line of JSON.

`{"sql": …}` is answered with the rows, `{"python": …}` with what the code leaves in `result`; an
error with its type and message. Answers are the lines of standard output that begin with `@@`.
"""

import json
import sys


def main(options):
    spark = start(options)
    answer({"ready": True})
    names = {"spark": spark}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "sql" in request:
                found = [list(row) for row in spark.sql(request["sql"]).collect()]
            else:
                names.pop("result", None)
                exec(request["python"], names)
                found = names.get("result")
            answer({"found": found})
        except Exception as error:
            # The client of Spark Connect adds where in Java it happened.
            message = str(error).split("\n\nJVM stacktrace:")[0]
            answer({"error": type(error).__name__, "message": message})
    spark.stop()


def start(options):
    if "remote" in options:
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(options["remote"]).getOrCreate()
    from phalanx.spark import session

    return session(**options)


def answer(value):
    print("@@" + json.dumps(value, default=str), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

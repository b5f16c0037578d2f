"""What the appendices of the specification write out, and the stock client that reads it."""

import datetime as dt

import lance
import lance_namespace as namespace
import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("event_date", pa.date32()),
        ("country", pa.string()),
    ]
)
DAY_1, DAY_2 = dt.date(2025, 12, 10), dt.date(2025, 12, 11)
# Appendix A.
APPENDIX_A_SCHEMA = {
    "fields": [
        {
            "name": "id",
            "nullable": False,
            "type": {"type": "int64"},
            "metadata": {"lance:field_id": "0"},
        },
        {
            "name": "event_date",
            "nullable": True,
            "type": {"type": "date32"},
            "metadata": {"lance:field_id": "1"},
        },
        {
            "name": "country",
            "nullable": True,
            "type": {"type": "utf8"},
            "metadata": {"lance:field_id": "2"},
        },
    ]
}
APPENDIX_A_BY_DATE = {
    "id": 1,
    "fields": [
        {
            "field_id": "event_date",
            "source_ids": [1],
            "transform": {"type": "identity"},
            "result_type": {"type": "date32"},
        }
    ],
}
APPENDIX_A_BY_YEAR = {
    "id": 2,
    "fields": [
        {
            "field_id": "event_year",
            "source_ids": [1],
            "transform": {"type": "year"},
            "result_type": {"type": "int32"},
        },
        {
            "field_id": "country",
            "source_ids": [2],
            "transform": {"type": "identity"},
            "result_type": {"type": "utf8"},
        },
    ],
}
# Appendix E writes the spec without blanks.
APPENDIX_E_SPEC = (
    '{"id":1,"fields":[{"field_id":"event_date","source_ids":[1],'
    '"transform":{"type":"identity"},"result_type":{"type":"date32"}}]}'
)
#: The name of a partition, at random.
NAME = r"[a-z0-9]{16}"


def row(id, event_date, country):
    return {"id": id, "event_date": event_date, "country": country}


def manifest(table):
    return lance.dataset(f"{table.uri}/__manifest")


def rows_of(table, *types):
    rows = manifest(table).to_table().to_pylist()
    return {r["object_id"]: r for r in rows if r["object_type"] in types}


class StockClient:
    """The namespace client that others use."""

    def __init__(self, root):
        self.client = namespace.connect("dir", {"root": root})

    def spaces(self, *id):
        request = namespace.ListNamespacesRequest(id=list(id))
        for name in self.client.list_namespaces(request).namespaces:
            yield (*id, name)
            yield from self.spaces(*id, name)

    def tables(self, id):
        request = namespace.ListTablesRequest(id=list(id))
        return [(*id, name) for name in self.client.list_tables(request).tables]

    def properties(self, *id):
        request = namespace.DescribeNamespaceRequest(id=list(id))
        return self.client.describe_namespace(request).properties

    def table(self, id):
        return self.client.describe_table(namespace.DescribeTableRequest(id=list(id)))

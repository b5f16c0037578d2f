"""A plain client of the object store that tests use."""


def client(options):
    """Boto's client of the store that these storage options reach."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    )

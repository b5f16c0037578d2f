# A Spark Connect server with a catalog of Phalanx tables in the volume /lake: docs/deploy.md.
#
#   docker build -t phalanx .
#   docker run -p 15002:15002 -v "$PWD/lake:/lake" phalanx
FROM python:3.11-slim-bookworm

RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*

COPY . /src
RUN pip install --no-cache-dir '/src[spark]' 'pandas>=2.3,<3' && rm -rf /src

ENV PYSPARK_PYTHON=/usr/local/bin/python3 PHALANX_CACHE=/var/cache/phalanx
WORKDIR /opt/phalanx

# Compiles the bridge, too, so that the server starts at once.
RUN mkdir -p "$PHALANX_CACHE" && python <<'PYTHON'
import os
from phalanx.spark import conf

with open("phalanx.conf", "w") as file:
    os.chmod("phalanx.conf", 0o600)
    for name, value in conf(warehouse="/lake").items():
        value = value.replace("\\", "\\\\")  # Spark reads \n as a line break
        file.write(f"{name} {value}\n")
PYTHON

VOLUME /lake
EXPOSE 15002
CMD ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", \
     "--properties-file", "phalanx.conf", \
     "--conf", "spark.connect.grpc.binding.port=15002", \
     "spark-internal"]

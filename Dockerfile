# docker build -t pd-locust .
# docker run --rm -p 8089:8089 pd-locust                                      web UI against the simulated service
# docker run --rm -u "$(id -u)" -e PD_API_KEY -v "$PWD/reports:/load/reports" pd-locust \
#   -f locustfiles/pd_benchmark.py --headless --csv reports/benchmark --host https://llm.example/v1
#   (-u: the directory is yours, and the image's own user may not write there)
FROM python:3.11-slim

COPY . /src
RUN pip install --no-cache-dir "/src[sim]" \
    && mkdir -p /load/reports \
    && cp -r /src/locustfiles /load/ \
    && rm -rf /src \
    && useradd --uid 10001 --home-dir /load --no-create-home load \
    && chown -R load /load/reports

ENV PYTHONUNBUFFERED=1
WORKDIR /load
USER 10001
EXPOSE 8089 5557
ENTRYPOINT ["locust"]
CMD ["-f", "locustfiles/pd_stream.py"]

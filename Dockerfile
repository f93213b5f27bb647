FROM python:3.11-slim

WORKDIR /build
COPY requirements/run.txt requirements/run.txt
RUN pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY scripts/package_readme.py scripts/package_readme.py
COPY src src
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

RUN useradd --create-home remit && mkdir /workspace && chown remit /workspace
USER remit
WORKDIR /workspace
ENTRYPOINT ["remit"]

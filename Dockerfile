# pyclmm with a driver for the CPU, for a user without root. docs/install.md has what a GPU needs besides.
FROM python:3.13-slim
ARG EXTRA=cpu
COPY . /src
RUN python -m pip install --no-cache-dir "/src[${EXTRA}]"
WORKDIR /work
ENV HOME=/tmp
USER nobody
CMD ["pyclmm", "info"]

#!/usr/bin/env bash
# Serves the example models, for `make run`. When they are ready, it prints three requests to try.
#   tools/serve_examples.sh HTTP_PORT METRICS_PORT
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
site=localhost:$1
elsewhere=""
[ "$1" = 8000 ] || elsewhere=" --url http://$site"
(
  until curl -fs -o /dev/null "$site/v2/health/ready"; do
    kill -0 $$ 2>/dev/null || exit 0  # the server has ended
    sleep 0.2
  done
  cat <<EOF

Try it from another terminal:

  curl $site/v1/embeddings -d '{"model": "minilm", "input": "The lift stopped"}'
  curl $site/v1/completions -d '{"model": "g2p", "prompt": "gondola"}'
  .venv/bin/python examples/file_type.py README.md$elsewhere

All models: curl -X POST $site/v2/repository/index. Your own: build/release/bin/chairlift serve model.onnx. Documentation: docs/README.md.
Ctrl-C ends the server.
EOF
) &
exec build/release/bin/chairlift serve --model-repository models --http-port "$1" --metrics-port "$2"

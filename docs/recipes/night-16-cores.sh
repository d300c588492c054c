#!/bin/sh
# Three hours on 16 cores with AMX: 500M, a model of 456 million parameters, reads the Go sources five
# times. The tokenizer is that of five-minutes-2-cores.sh.
#
#   docs/recipes/night-16-cores.sh                          to runs/night
#   OUT=runs/mine docs/recipes/night-16-cores.sh ~/text     your own text, as data tokenize takes it
#
# To continue after Ctrl-C, a crash or kill -9, run it again: files that exist are kept, and training
# goes on from its newest checkpoint. For another text or other settings, give another OUT.
#
# Expect 1.24 bits/byte (15 % more at most), 170 minutes and 13,200 MiB on 16 cores of an Intel Xeon (AMX), with
# the Go sources of Go 1.26.8 (45,056,000 tokens). The first 148 steps were measured, see
# bench/results/run-night-16-cores.md. The rest is extrapolated: it has not been run to the end.
set -eu
out=${OUT:-runs/night}
mkdir -p "$out"

test -e "$out/tokenizer.json" || launcher data train-tokenizer --vocab 4096 --out "$out/tokenizer.json" "$@"
test -e "$out/tokens.arrow" || launcher data tokenize --tokenizer "$out/tokenizer.json" --out "$out/tokens.arrow" "$@"
launcher -np 8 train --data "$out/tokens.arrow" --out "$out/model" --timeout 0 \
  --flavor 500M --steps 1375 --seq 1024 --batch 32 --set log_every=5 --eval-every 50 --set eval_sequences=64
launcher -np 8 eval --checkpoint "$out/model" --max-tokens=-1
launcher -np 8 generate --checkpoint "$out/model" --max-tokens 300 --slide >"$out/sample.txt" \
  --prompt "// New returns " --prompt "func (r *Reader) " --prompt "package main

import (
"
test -e "$out/exported" || launcher convert --from "$out/model" --to "$out/exported"
echo "report: $out/model/report.html, texts: $out/sample.txt, for Hugging Face's libraries: $out/exported"

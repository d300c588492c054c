package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// refusalMemory is what refusing may allocate, all together, in bytes: twice what the worst case
// takes, because the race detector makes some objects larger.
const refusalMemory = 48 << 20

// allocated is how many bytes do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// refusal is a command line with a mistake, or made to do harm. Its message has the words of want
// in this order, with anything in the place of " ... ".
type refusal struct{ line, want string }

// nines is a number that nothing may take for one.
var nines = strings.Repeat("9", 100_000)

// jobRefusals are about the world of a job.
var jobRefusals = []refusal{
	{"-np 1000 train", "-np is 1000: give 1 or more ranks, at most 256"},
	{"-np " + nines + " train", "value out of range"},
	{"train --ranks process --bind-to socket", `--bind-to is "socket": use none or core`},
	{"train --ranks process --spares -1", "--spares is -1"},
	{"train --ranks process --spares 1 --restarts 0", "--spares has no effect with --restarts 0"},
	{"train --restarts 9", "--silence and --restarts are about rank processes"},
	{"train --silence 9s", "which can be replaced: add --ranks process"},
	{"train --silence 0", "--silence must be positive"},
	{"--timeout 99999999h train", "a time, such as"},
	{"--timeout -1s train", "must not be negative"},
	{"--ranks process --heap-mib 9223372036854775807 train", "--heap-mib is 9223372036854775807: give at most 1073741824"},
}

// runRefusals are about settings of a run.
var runRefusals = []refusal{
	{"train --set ep_exchange=mpi", `ep_exchange is "mpi": use onesided or standard`},
	{"train --steps " + nines, "must be a whole number"},
	{"train --optimizer.lr nan", "optimizer.lr is NaN"},
	{"train --set ep_capacity=inf", "ep_capacity is +Inf"},
	{"train --threads 9223372036854775807", "threads is 9223372036854775807"},
	{"train --out \xff --data \xfe", "is not UTF-8"},
	{"train --" + nines + " 1", "unknown flag"},
	{"train --save-every often", "often ... a number of steps (500), a time (10m, 90s, 2h) or 0"},
	{"train --save-every -10m", "a number of steps (500), a time (10m, 90s, 2h) or 0"},
	{"train --data rows.jsonl --trace steps=5..7", "--profile"},
	{"train --color sometimes", `"sometimes" ... auto, always, never`},
	{"train --config old.toml", "old.toml:2: fp8.accumulate is gone"},
	{"train --config model.json", "model.json is JSON, as a model's config.json, not TOML: give the folder of a Hugging Face model to --init-from"},
	{"train --precision nvfp4 --set sum=h100", "an H100 has no block scales: use b200"},
	{"train --precision fp8-block --set sum=h100-nopromotion", "a chain cannot cross from one scale to the next: use h100"},
	{"train --precision nvfp4 --set mx.gradient=e5m2", "transform both operands"},
	{"train --precision fp8-block --set fp8.gradient=128x128 --set dp_replicate=2 -np 2 --ep 1", "rows of an expert, which replicas would divide"},
}

// dataRefusals are about data and tokenizers. TOKENIZER is a tokenizer of 300 tokens.
var dataRefusals = []refusal{
	{"data", "needs a subcommand ... tokenize"},
	{"data tokenize rows.jsonl", "needs --out FILE"},
	{"data tokenize rows.jsonl --out x --json", "tokenize has no flag --json"},
	{"data tokenize rows.jsonl@2 --out x", "has a weight ... only training takes"},
	{"data tokenize rows.jsonl --data-field body --out x", `rows.jsonl: line 1 ... no field "body" ... data_field`},
	{"data train-tokenizer rows.jsonl", "needs --out FILE"},
	{"data train-tokenizer rows.jsonl --out rows.jsonl", "exists already"},
	{"data train-tokenizer rows.jsonl --out x --vocab 256", "--vocab is 256: give 257"},
	{"train --tokenizer TOKENIZER --set model.vocab=256", "model.vocab is 256 ... has 300 tokens"},
	{"train --tokenizer tiktoken:none", `no encoding "none"`},
	{"train --set special_tokens=true --data rows.jsonl", "special_tokens: tokenizer bytes has no special tokens"},
}

// modelRefusals are about trained models.
var modelRefusals = []refusal{
	{"generate", "--prompt TEXT ... --prompt-file FILE"},
	{"generate --prompt-file none", "none ... one prompt per line"},
	{"generate --prompt x --temperature -1", "temperature is -1"},
	{"generate --prompt x --max-tokens 0", "number of new tokens is 0"},
	{"generate --prompt x --stop=", "stop text is empty"},
	{"generate --prompt x --context 5000", "context is 5000 ... 1 to 4096"},
	{"generate --prompt 12345678 --context 5", "prompt 1 has 8 tokens ... the context is 5"},
	{"generate --prompt x -np 3", "-np 3 ... 4 experts ... use 1, 2 or 4"},
	{"generate --prompt x --checkpoint none", "none ... expected the folder of a run"},
	{"generate --prompt x --checkpoint empty", "empty ... config.json"},
	{"generate --prompt x --tokenizer tiktoken:gpt2", "50257 ids ... vocabulary is 256 ... --tokenizer"},
	{"eval --seq 5000", "--seq is 5000 ... 1 to 4096"},
	{"eval --seq 4096", "validation data ... 4097"},
	{"eval --max-tokens 20 --seq 32", "--max-tokens is 20 ... at least a window of 32"},
	{"convert --from runs/run", "needs --from FOLDER and --to FOLDER"},
	{"convert runs/run --from runs/run --to x", `unexpected argument "runs/run"`},
	{"convert --from runs/run --to x --dtype fp8", `--dtype is "fp8": use `},
	{"convert --from runs/run --to x --shard-size 5G", `--shard-size: "5G" is not a size`},
	{"convert --from runs/run --to empty", "empty exists"},
	{"convert --from empty --to x", "empty holds no weights ... config.json"},
	{"train --init-from nowhere --out x", "init_from:  ... nowhere ... expected the folder of a run"},
	{"inspect none --html", "none ... give the folder of a run"},
	{"inspect debug --layouts --schedule", "--layouts and --schedule were given"},
	{"inspect runs/run --verify --seq 7", "--seq has no meaning for inspect --verify"},
}

// benchRefusals are about comparisons and benchmarks.
var benchRefusals = []refusal{
	{"compare --seeds 1000000000", "--seeds is 1000000000: give 1 or more"},
	{"compare --margin nan", "--margin is NaN"},
	{"compare --precision bf16,fp8-block+14bit", `"14bit" is neither a setting`},
	{"check \x00", "invalid argument"},
	{"bench", "launcher: "},
	{"bench kernels --json empty", "empty"},
	{"bench kernels --match (", "missing closing"},
	{"bench kernels --match " + strings.Repeat("(", 2000) + strings.Repeat(")", 2000), "nests too deeply"},
	{"bench train --precision bf16,fp9", `precision is "fp9"`},
	{"bench train -np 2 --batch 7", "batch is 7: give a multiple of th"},
}

// Refused command lines end with code 2, a message that helps and no trace on the disk, in little
// memory.
func TestRefusals(t *testing.T) {
	data := text(t)
	trainedRun(t)
	own := trainedTokenizer(t, data)
	write(t, "rows.jsonl", strings.Repeat(`{"text":"a row of a set"}`+"\n", 1000))
	write(t, "model.json", "{\n  \"model_type\": \"deepseek_v3\"\n}")
	write(t, "old.toml", "[fp8]\naccumulate = '14bit'\n")
	if err := os.Mkdir("empty", 0o777); err != nil {
		t.Fatal(err)
	}
	before := files(t, ".")
	for _, c := range slices.Concat(jobRefusals, runRefusals, dataRefusals, modelRefusals, benchRefusals) {
		t.Run(fmt.Sprintf("%.60s", c.line), func(t *testing.T) {
			var got outcome
			if n := allocated(func() { got = briefly(strings.Split(strings.Replace(c.line, "TOKENIZER", own, 1), " ")...) }); n > refusalMemory {
				t.Errorf("%d bytes were allocated", n)
			}
			if got.code != cli.ExitUsage || got.out != "" {
				t.Errorf("exit code %d, output %q, errors %q", got.code, got.out, got.errOut)
			}
			rest, found := got.errOut, true
			for words := range strings.SplitSeq(c.want, " ... ") {
				if _, rest, found = strings.Cut(rest, words); !found {
					t.Errorf("the message is %q, want %q", got.errOut, c.want)
					break
				}
			}
		})
	}
	same(t, files(t, "."), before)
}

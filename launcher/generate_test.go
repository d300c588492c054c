package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/cli"
)

// trainedRun makes a run of some steps in the folder "runs/run", and returns the last line of its
// log.
func trainedRun(t *testing.T, more ...string) (done map[string]any) {
	t.Helper()
	data := text(t)
	t.Chdir(t.TempDir())
	out := succeed(t, tiny(data, append([]string{"--out", "runs/run", "--precision", "fp32", "--log-format", "json", "--steps", "30"}, more...)...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &done); err != nil {
		t.Fatal(err)
	}
	return done
}

// texts runs generate and returns its JSON lines, the last of which is of times.
func texts(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	got := launch(append([]string{"generate", "--json"}, args...)...)
	if got.code != cli.ExitOK {
		t.Fatalf("%q: exit code %d: %s", args, got.code, got.errOut)
	}
	var all []map[string]any
	for line := range strings.Lines(got.out) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, event)
	}
	if last := all[len(all)-1]; last["event"] != "done" || !(last["prefill_tokens"].(float64) > 0) {
		t.Errorf("%q ends with %v", args, last)
	}
	return all[:len(all)-1]
}

// What generate writes is the same on any number of ranks, alone and in a batch, in pieces and as
// JSON; and it is what the run's own sample was.
func TestGenerate(t *testing.T) {
	done := trainedRun(t, "--set", "sample_tokens=40")
	as := []string{"--prompt", "// New returns ", "--max-tokens", "40", "--endless", "--slide"}
	one := texts(t, as...)[0]
	if one["text"] != done["sample"] || one["text"] == "" || one["reason"] != "length" || one["prompt"] != "// New returns " {
		t.Errorf("%v, the sample of the run is %q", one, done["sample"])
	}
	greedy := append(as[:len(as):len(as)], "--temperature", "0")
	best := texts(t, append(greedy, "--seed", "2")...)[0]
	for _, ranks := range []string{"1", "2", "4"} {
		all := texts(t, append([]string{"-np", ranks, "--prompt", "rank ", "--prompt", "é"}, as...)...)
		again := texts(t, append([]string{"-np", ranks, "--prompt", "rank ", "--prompt", "weights", "--prompt", "more"}, as...)...)
		if len(all) != 3 || len(again) != 4 || all[0]["text"] != again[0]["text"] || all[1]["text"] == again[1]["text"] {
			t.Errorf("%s ranks: %v and %v", ranks, all, again)
		}
		plain := launch(append([]string{"generate", "-np", ranks, "--checkpoint", "runs/run"}, greedy...)...)
		if plain.code != cli.ExitOK || plain.out != "// New returns "+best["text"].(string)+"\n" {
			t.Errorf("%s ranks: %+v, want %q", ranks, plain, best["text"])
		} else if !strings.Contains(plain.errOut, "prefill: 15 tokens, ") || !strings.Contains(plain.errOut, "decode: ") {
			t.Errorf("%s ranks: %q", ranks, plain.errOut)
		}
	}
	short := launch("generate", "--prompt", "func", "--max-tokens", "1")
	if short.code != cli.ExitOK || !strings.HasPrefix(short.errOut, "prefill: 4 tokens, ") || strings.Contains(short.errOut, "decode") {
		t.Errorf("a token without a pass of its own: %+v", short)
	}
	if other := texts(t, append(as, "--seed", "2")...)[0]; other["text"] == one["text"] {
		t.Error("another seed gives the same text")
	}
	if other := texts(t, append(greedy, "--seed", "3")...)[0]; other["text"] != best["text"] || best["text"] == one["text"] {
		t.Errorf("always the best token: %q and %q, at random %q", best["text"], other["text"], one["text"])
	}
}

// Every token has the log-probability of a training step on another number of ranks, and a line of
// its own with its experts.
func TestGenerateCheck(t *testing.T) {
	trainedRun(t, "--precision", "bf16")
	args := []string{"generate", "--prompt", "rank ", "--prompt", "weights of", "--max-tokens", "12", "--endless", "--check", "--logprobs", "probs.jsonl"}
	for ranks, other := range map[string]string{"1": "1 rank, compared with training on 2 ranks", "2": "2 ranks, compared with training on 1 rank"} {
		got := launch(append(args, "-np", ranks)...)
		if want := "24 tokens: 24 log-probabilities equal to the last bit; generated on " + other; got.code != cli.ExitOK || !strings.Contains(got.out+got.errOut, want) {
			t.Errorf("exit code %d: %s%s, want %q", got.code, got.out, got.errOut, want)
		}
		text, err := os.ReadFile("probs.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		for _, line := range lines {
			var token struct {
				LogProb float64
				Experts [][]int32
			}
			if err := json.Unmarshal([]byte(line), &token); err != nil || !(token.LogProb < 0) || len(token.Experts) != 1 || len(token.Experts[0]) == 0 {
				t.Errorf("%s: %v", line, err)
			}
		}
		if len(lines) != 24 {
			t.Errorf("%d lines, want 24", len(lines))
		}
	}
	refuse(t, cli.ExitUsage, append(args, "--fast"), "--check compares the bits of training, which --fast does not have")
	refuse(t, cli.ExitUsage, append(args, "--slide"), "--check needs each text as one sequence")
	refuse(t, cli.ExitUsage, append(args, "--precision", "nvfp4"), "--check: ")
}

// Several texts are printed in order, each with its number above it.
func TestGenerateBatch(t *testing.T) {
	trainedRun(t)
	file := write(t, "prompts", "first\r\n\nsecond one\n")
	as := []string{"--max-tokens", "5", "--temperature", "0"}
	got := launch(append([]string{"generate", "--prompt", "zeroth", "--prompt-file", file}, as...)...)
	want := ""
	for i, event := range texts(t, append([]string{"--prompt", "zeroth", "--prompt-file", file}, as...)...) {
		prompt := []string{"zeroth", "first", "second one"}[i]
		want += fmt.Sprintf("== %d: %q\n%s%s\n", i+1, prompt, prompt, event["text"])
	}
	if got.code != cli.ExitOK || got.out != want {
		t.Errorf("%+v, want %q", got, want)
	}
}

// A model of Hugging Face's form says what its run says, with the tokenizer that is beside it or is
// given.
func TestGenerateFromHuggingFace(t *testing.T) {
	trainedRun(t)
	succeed(t, "convert", "--from", "runs/run", "--to", "hf", "--dtype", "fp32")
	if err := os.RemoveAll("hf/tokenizer.json"); err != nil {
		t.Fatal(err)
	}
	refuse(t, cli.ExitUsage, []string{"generate", "--checkpoint", "hf", "--prompt", "x"}, "hf has no tokenizer.json", "--tokenizer")
	as := []string{"--prompt", "the rank ", "--max-tokens", "20", "--context", "32", "--precision", "bf16"}
	want := texts(t, append(as, "--checkpoint", "runs/run")...)[0]
	got := texts(t, append(as, "--checkpoint", "hf", "--tokenizer", "bytes")...)[0]
	if got["text"] != want["text"] || got["text"] == "" {
		t.Errorf("%v, the run says %v", got, want)
	}
	// Its texts may have to begin with a token, which is no part of what is shown.
	write(t, "hf/tokenizer_config.json", `{"add_bos_token": true, "bos_token": "the "}`)
	begun := texts(t, "--prompt", "rank ", "--max-tokens", "20", "--context", "32", "--checkpoint", "hf", "--tokenizer", "bytes")[0]
	if begun["text"] != want["text"] || begun["prompt"] != "rank " {
		t.Errorf("%v, want the text of %v", begun, want)
	}
	write(t, "hf/tokenizer_config.json", `{"add_bos_token": true}`)
	refuse(t, cli.ExitUsage, []string{"generate", "--checkpoint", "hf", "--tokenizer", "bytes", "--prompt", "x"}, "hf/tokenizer_config.json", "bos_token")
}

// Texts that end early say why.
func TestGenerateEnds(t *testing.T) {
	trainedRun(t)
	as := []string{"generate", "--prompt", "the ", "--temperature", "0", "--endless"}
	whole := strings.TrimSuffix(strings.TrimPrefix(launch(append(as, "--max-tokens", "20")...).out, "the "), "\n")
	if len(whole) != 20 {
		t.Fatalf("%q", whole)
	}
	full := launch(append(as, "--max-tokens", "100")...) // of a run with sequences of 32 tokens
	if full.code != cli.ExitOK || !strings.HasPrefix(full.out, "the "+whole) || len(full.out) != 4+29+1 ||
		!strings.Contains(full.errOut, "note: the context of 32 tokens was full") || !strings.Contains(full.errOut, "up to 4096") || !strings.Contains(full.errOut, "--slide") {
		t.Errorf("%+v", full)
	}
	if long := launch(append(as, "--max-tokens", "100", "--context", "4096")...); long.code != cli.ExitOK || len(long.out) != 4+100+1 || strings.Contains(long.errOut, "full") {
		t.Errorf("%+v", long)
	}
	stop := whole[5:7]
	before, _, _ := strings.Cut(whole, stop)
	if got := launch(append(as, "--max-tokens", "20", "--stop", "none of this", "--stop", stop)...); got.code != cli.ExitOK || got.out != "the "+before+"\n" {
		t.Errorf("until %q: %+v, the whole text is %q", stop, got, whole)
	}
}

// Told to stop, generate ends with the text that there is.
func TestGenerateInterrupt(t *testing.T) {
	trainedRun(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := 0
	got := launchTo(ctx, writerFunc(func(b []byte) {
		if n += len(b); n >= 10 {
			cancel()
		}
	}), "generate", "-np", "2", "--prompt", "the ", "--max-tokens", "2000", "--context", "4096", "--endless")
	if got.code != cli.ExitInterrupted || !strings.HasPrefix(got.out, "the ") || len(got.out) < 11 || len(got.out) > 200 || !strings.HasSuffix(got.out, "\n") || !strings.Contains(got.errOut, "decode: ") {
		t.Errorf("%+v", got)
	}
	refuse(t, cli.ExitInterrupted, []string{"eval"})
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// generate reports a model that has diverged.
func TestGenerateFromBrokenModel(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	if got := launch(tiny(data, "--out", "runs/run", "--precision", "fp32", "--optimizer.lr", "1e18", "--steps", "1")...); got.code != cli.ExitFailed {
		t.Fatalf("%+v", got)
	}
	if got := launch("generate", "--prompt", "x"); got.code != cli.ExitFailed || !strings.Contains(got.errOut, "scores are not finite") {
		t.Errorf("%+v", got)
	}
	got := launch("eval", "--json")
	if got.code != cli.ExitFailed || !strings.Contains(got.out, `"loss": null`) || !strings.Contains(got.errOut, "training has diverged") {
		t.Errorf("%+v", got)
	}
}

// eval takes fewer tokens than a window of the run.
func TestEvalFewTokens(t *testing.T) {
	trainedRun(t)
	if out := succeed(t, "eval", "--max-tokens", "20"); !strings.Contains(out, "over 1 window of 20 tokens") {
		t.Errorf("the output is\n%s", out)
	}
	refuse(t, cli.ExitUsage, []string{"eval", "--max-tokens", "20", "--seq", "32"}, "--max-tokens is 20", "at least a window of 32")
}

func TestFourDigits(t *testing.T) {
	for x, want := range map[float64]string{1.23456: "1.235", 130253.1448: "130,253", 9.5: "9.5", 8123.4: "8123"} {
		if got := cli.FourDigits(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}

// eval measures what the last evaluation of the run has measured, on any number of ranks.
func TestEval(t *testing.T) {
	done := trainedRun(t, "--set", "eval_sequences=7")
	measured := func(args ...string) map[string]any {
		t.Helper()
		var r map[string]any
		if err := json.Unmarshal([]byte(succeed(t, append([]string{"eval", "--json"}, args...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, ranks := range []string{"1", "2", "4"} {
		for _, batch := range []string{"1", "8"} {
			r := measured("-np", ranks, "--batch", batch)
			if r["loss"] != done["last_held_out_loss"] || r["windows"] != 7.0 || r["tokens"] != 7*32.0 || r["seq"] != 32.0 || r["tokenizer"] != "bytes" {
				t.Errorf("%s ranks, batch %s: %v, at the end of the run %v", ranks, batch, r, done)
			}
			if bits := r["loss"].(float64) / math.Ln2; math.Abs(r["bits_per_byte"].(float64)-bits) > 1e-12 || math.Abs(r["bits_per_byte"].(float64)-done["last_held_out_bits_per_byte"].(float64)) > 1e-12 {
				t.Errorf("%v bits/byte, at the end of the run %v", r["bits_per_byte"], done["last_held_out_bits_per_byte"])
			}
		}
	}
	all, some := measured("--max-tokens", "-1"), measured("--max-tokens", "100", "--seq", "16")
	if !(all["windows"].(float64) > 7) || some["windows"] != 6.0 || some["seq"] != 16.0 || !(all["standard_error"].(float64) < some["standard_error"].(float64)) {
		t.Errorf("of all: %v, of few: %v", all, some)
	}
	other := t.TempDir()
	for i := range 3 {
		write(t, fmt.Sprintf("%s/%d", other, i), strings.Repeat("something else altogether, ", 300))
	}
	if r := measured("--data", other, "--precision", "bf16", "--checkpoint", "runs/run/step-00000030"); !(r["loss"].(float64) > all["loss"].(float64)) || r["precision"] != "bf16" || r["checkpoint"] != "runs/run/step-00000030" {
		t.Errorf("of another text: %v", r)
	}
	out := succeed(t, "eval")
	for _, want := range []string{"runs/run/step-00000030, fp32, 1 rank\n", fmt.Sprintf("validation loss: %.4f nats/token, standard error 0.", done["last_held_out_loss"]), "over 7 windows of 32 tokens", "perplexity: ", " bits/byte of 224 bytes", "224 tokens, "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q, want %q in it", out, want)
		}
	}
}

// eval keeps documents apart if training did.
func TestEvalOfDocuments(t *testing.T) {
	short := t.TempDir() // documents, of which several are in a window
	for i := range 300 {
		write(t, fmt.Sprintf("%s/%d", short, i), strings.Repeat(fmt.Sprintf("row %d. ", i), 3+i%3))
	}
	done := trainedRun(t, "--set", "document_mask=true", "--data", short, "--seq", "64")
	out := succeed(t, "eval", "--json", "-np", "2")
	var r map[string]any
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r["loss"] != done["last_held_out_loss"] {
		t.Errorf("%v, at the end of the run %v", r, done)
	}
}

// Mistakes end with code 2 and a message that helps.
func TestModelCommandsRefuse(t *testing.T) {
	trainedRun(t)
	if err := os.Mkdir("empty", 0o777); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]string{
		"generate":                                      {"--prompt TEXT", "--prompt-file FILE"},
		"generate hello":                                {`"hello"`, "--prompt"},
		"generate --prompt-file none":                   {"--prompt-file", "none", "one prompt per line"},
		"generate --prompt x --temperature -1":          {"temperature is -1"},
		"generate --prompt x --temperature warm":        {`"warm"`, "temperature", "a number"},
		"generate --prompt x --top-p 0":                 {"top-p is 0"},
		"generate --prompt x --top-k -1":                {"top-k is -1"},
		"generate --prompt x --max-tokens 0":            {"number of new tokens is 0"},
		"generate --prompt x --seed -1":                 {`"-1"`, "seed"},
		"generate --prompt x --stop=":                   {"stop text is empty"},
		"generate --prompt x --context 5000":            {"context is 5000", "1 to 4096"},
		"generate --prompt x --context -1":              {"context is -1"},
		"generate --prompt 12345678 --context 5":        {"prompt 1 has 8 tokens", "the context is 5"},
		"generate --prompt x -np 0":                     {"-np is 0"},
		"generate --prompt x -np 3":                     {"-np 3", "4 experts", "use 1, 2 or 4"},
		"generate --prompt x --precision fp7":           {`"fp7"`, "bf16"},
		"generate --prompt x --checkpoint none":         {"none", "expected the folder of a run"},
		"generate --prompt x --checkpoint empty":        {"empty", "config.json"},
		"generate --prompt x --tokenizer none":          {`"none"`, "bytes, tiktoken:"},
		"generate --prompt x --tokenizer tiktoken:gpt2": {"50257 ids", "vocabulary is 256", "--tokenizer"},
		"eval x":                        {`"x"`, "--data"},
		"eval --seq 0 --batch 0":        {"--batch is 0"},
		"eval --seq 5000":               {"--seq is 5000", "1 to 4096"},
		"eval --max-tokens 31 --seq 32": {"--max-tokens is 31", "a window of 32"},
		"eval --data none":              {"none", "no such file"},
		"eval --seq 4096":               {"validation data", "4097"},
		"eval --checkpoint empty":       {"empty"},
	} {
		refuse(t, cli.ExitUsage, strings.Fields(args), want...)
	}
	t.Chdir("empty")
	refuse(t, cli.ExitUsage, []string{"generate", "--prompt", "x"}, "no run with a checkpoint", "--checkpoint")
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

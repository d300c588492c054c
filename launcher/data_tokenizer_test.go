package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/datasets"
	"spmoe/launcher/cli"
)

// trainedTokenizer trains a tokenizer of 300 tokens on a folder of text and returns its file.
func trainedTokenizer(t *testing.T, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.json")
	out := succeed(t, "data", "train-tokenizer", "--data", data, "--vocab", "300", "--out", path)
	if !strings.Contains(out, ": 300 tokens, from ") || !strings.Contains(out, "bytes/token of validation text") {
		t.Errorf("it says %q", out)
	}
	return path
}

func TestTrainTokenizer(t *testing.T) {
	data := text(t)
	first, second := trainedTokenizer(t, data), trainedTokenizer(t, data)
	a, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(second); err != nil || !bytes.Equal(a, b) {
		t.Errorf("the same text gives another tokenizer: %v", err)
	}
	if tok, err := datasets.OpenTokenizer(first); err != nil || len(tok.Encode([]byte(" the rank"))) > 6 {
		t.Errorf("words of the text take many tokens: %v", err)
	}
	got := launch("data", "train-tokenizer", filepath.Join(data, "0.txt"), "--vocab", "100000", "--out", filepath.Join(t.TempDir(), "large.json"))
	if got.code != cli.ExitOK || !strings.Contains(got.errOut, "warning: only ") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	refuse(t, cli.ExitUsage, []string{"data", "train-tokenizer", data}, "needs --out FILE")
	refuse(t, cli.ExitUsage, []string{"data", "train-tokenizer", data, "--out", first}, "exists already")
	refuse(t, cli.ExitUsage, []string{"data", "train-tokenizer", data, "--out", "x", "--vocab", "256"}, "--vocab is 256: give 257")
	refuse(t, cli.ExitUsage, []string{"data", "train-tokenizer", "missing", "--out", "x"}, "missing")
	refuse(t, cli.ExitInterrupted, []string{"data", "train-tokenizer", data, "--out", "x"})
	if _, err := os.Stat("x"); !os.IsNotExist(err) {
		t.Error("a refused command writes its file")
	}
}

// A run takes its vocabulary from the tokenizer, and does without the file that it was given from
// then on.
func TestTokenizerOfRun(t *testing.T) {
	data := text(t)
	own := trainedTokenizer(t, data)
	if err := os.WriteFile(filepath.Join(filepath.Dir(own), "tokenizer_config.json"), []byte(`{"eos_token": "<|endoftext|>"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	args := tiny(data, append(jsonLog, "-np", "2", "--out", "run", "--save-every", "2", "--tokenizer", own)...)
	whole := succeed(t, args...)
	if start := jsonEvents(t, whole, "start")[0]; start["tokenizer"] != own+", 300 tokens; documents end with <|endoftext|> (0), eos_token of tokenizer_config.json" {
		t.Errorf("the log says %v", start["tokenizer"])
	}
	if eval := jsonEvents(t, whole, "eval")[0]; !(eval.number("held_out_bits_per_byte") < eval.number("held_out_loss")) {
		t.Errorf("a token is no more than a byte: %v", eval)
	}
	config, err := os.ReadFile("run/config.toml")
	if err != nil || !strings.Contains(string(config), "vocab = 320\n") {
		t.Errorf("the vocabulary of 300 tokens is not 320: %v\n%s", err, config)
	}
	want := files(t, ".")
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(own, own+".gone"); err != nil {
		t.Fatal(err)
	}
	succeed(t, args...) // the same command, given again, goes on
	same(t, files(t, "."), want)
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	succeed(t, "train", "--resume", "--out", "run", "-np", "2", "--log-format", "json")
	same(t, files(t, "."), want)

	refuse(t, cli.ExitUsage, []string{"train", "--resume", "--out", "run", "-np", "2", "--tokenizer", "bytes"}, "tokenizer is "+own, "not bytes", "cannot change")
	refuse(t, cli.ExitUsage, tiny(data, "--out", "other", "--tokenizer", own), own, "use bytes, tiktoken:")
	refuse(t, cli.ExitUsage, tiny(data, "--tokenizer", own+".gone", "--model.vocab", "256"), "model.vocab is 256", "has 300 tokens")
	refuse(t, cli.ExitUsage, []string{"train", "--dry-run", "--tokenizer", own + ".gone", "--model.vocab", "256"}, "model.vocab is 256", "has 300 tokens")
	refuse(t, cli.ExitUsage, tiny(data, "--tokenizer", "tiktoken:none"), `no encoding "none"`)
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/datasets"
	"spmoe/launcher/cli"
)

// jsonl writes rows of text under a field's name and returns the path.
func jsonl(t *testing.T, name, field string) string {
	t.Helper()
	var b strings.Builder
	for i := range 400 {
		fmt.Fprintf(&b, "{%q:\"row %d of a set, with a text of some length\"}\n", field, i%390)
	}
	return write(t, filepath.Join(t.TempDir(), name), b.String())
}

// TestDataTokenize makes a token file that train reads, and inspects it.
func TestDataTokenize(t *testing.T) {
	rows := jsonl(t, "rows.jsonl", "body")
	out := filepath.Join(t.TempDir(), "tokens.arrow")
	got := succeed(t, "data", "tokenize", "--data", rows, "--data-field", "body", "--out", out)
	if !strings.Contains(got, out+": ") || !strings.Contains(got, " documents, validation ") || !strings.Contains(got, "0.98 bytes/token") {
		t.Errorf("the output is %q", got)
	}
	run := filepath.Join(t.TempDir(), "run")
	trained := succeed(t, "-np", "2", "train", "--data", out, "--out", run, "--steps", "2", "--seq", "32", "--batch", "4", "--set", "eval_sequences=2",
		"--set", "sample_tokens=0", "--set", "document_mask=true")
	if !strings.Contains(trained, "step") {
		t.Errorf("the output is %q", trained)
	}
	config, err := os.ReadFile(filepath.Join(run, "step-00000002", "config.toml"))
	if err != nil || !strings.Contains(string(config), "document_mask = true") || !strings.Contains(string(config), "data_field = 'text'") {
		t.Errorf("the configuration is %s, %v", config, err)
	}
	refuse(t, cli.ExitUsage, []string{"data", "tokenize", rows, "--data-field", "body", "--out", out}, "tokens.arrow exists", "another --out")
	refuse(t, cli.ExitUsage, []string{"data", "tokenize", out, "--out", out + "2"}, "holds tokens already")
}

// A token file contains its tokenizer. Another tokenizer is refused, with the names of both files.
func TestTokenFileTokenizer(t *testing.T) {
	data := text(t)
	own, tokens := trainedTokenizer(t, data), filepath.Join(t.TempDir(), "corpus.arrow")
	succeed(t, "data", "tokenize", "--data", data, "--tokenizer", own, "--out", tokens)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--tokenizer", own, "--out", "text")...)
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	succeed(t, tiny(tokens, "--out", "run")...)
	a, b := files(t, "text"), files(t, "run")
	for _, name := range []string{"tokenizer.json", "step-00000006/rank-00000-of-00001.safetensors"} {
		if a[name] == "" || a[name] != b[name] {
			t.Errorf("%s of the token file differs from that of the text", name)
		}
	}
	if cfg := b["config.toml"]; !strings.Contains(cfg, "tokenizer = '"+tokens+"'") || !strings.Contains(cfg, "vocab = 320\n") {
		t.Errorf("the configuration is\n%s", cfg)
	}
	succeed(t, "train", "--resume", "--out", "run", "--steps", "7", "--report=false")
	if got := launch("generate", "--checkpoint", "run", "--prompt", "the ", "--max-tokens", "4", "--tokenizer", tokens); got.code != cli.ExitOK {
		t.Errorf("%+v", got)
	}
	refuse(t, cli.ExitUsage, tiny(tokens, "--tokenizer", "bytes"), tokens, "another tokenizer than bytes", "leave --tokenizer out")

	// Built-in tokenizers need no copy.
	named := filepath.Join(t.TempDir(), "named.arrow")
	succeed(t, "data", "tokenize", "--data", data, "--tokenizer", "tiktoken:r50k_base", "--out", named)
	if cfg := resolved(t, "--data", named); cfg.Tokenizer != "tiktoken:r50k_base" {
		t.Errorf("tokenizer %q", cfg.Tokenizer)
	}
	refuse(t, cli.ExitUsage, []string{"train", "--dry-run", "--data", named + "@1", tokens + "@1"}, tokens, "another tokenizer than tiktoken:r50k_base")
	refuse(t, cli.ExitUsage, []string{"train", "--dry-run", "--tokenizer", "../" + filepath.Base(data)}, "tokenizer")
}

func TestDataInspect(t *testing.T) {
	rows, other := jsonl(t, "rows.jsonl", "text"), jsonl(t, "more.jsonl", "text")
	got := succeed(t, "data", "inspect", rows)
	for _, want := range []string{rows + "\n", "400 (0 more skipped", "by bytes, 0.978 bytes/token"} {
		if !strings.Contains(got, want) {
			t.Errorf("the output lacks %q: %s", want, got)
		}
	}
	var all []datasets.Inspection
	if err := json.Unmarshal([]byte(succeed(t, "data", "inspect", "--json", rows+"@3", other+"@1")), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Source != rows || all[0].Weight != 3 || all[1].Documents != 400 || all[1].Tokens != all[1].Bytes+400 {
		t.Errorf("%+v", all)
	}
}

func TestDataUsage(t *testing.T) {
	rows := jsonl(t, "rows.jsonl", "text")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"data"}, []string{"needs a subcommand", "tokenize", "inspect"}},
		{[]string{"data", "tokenise"}, []string{`"tokenise"`, "did you mean tokenize?"}},
		{[]string{"data", "tokenize", rows}, []string{"needs --out FILE"}},
		{[]string{"data", "tokenize", rows, "--out", "x", "--json"}, []string{"tokenize has no flag --json: it is a flag of data inspect"}},
		{[]string{"data", "inspect", rows, "--out", "x"}, []string{"inspect has no flag --out: it is a flag of data tokenize, data train-tokenizer"}},
		{[]string{"data", "inspect", rows + ".gone"}, []string{"rows.jsonl.gone", "no such file"}},
		{[]string{"data", "inspect", rows, "--data-field", "body"}, []string{"rows.jsonl: line 1", `no field "body"`, "data_field"}},
		{[]string{"data", "tokenize", rows + "@2", "--out", "x"}, []string{"has a weight", "only training takes"}},
		{[]string{"train", "--data", rows, "--set", "data_field=body"}, []string{`no field "body"`}},
	} {
		got := launch(c.args...)
		if got.code != cli.ExitUsage {
			t.Errorf("%q: exit code %d, %s", c.args, got.code, got.errOut)
		}
		for _, want := range c.want {
			if !strings.Contains(got.errOut, want) {
				t.Errorf("%q: error %q does not say %q", c.args, got.errOut, want)
			}
		}
	}
	interrupted, cancel := context.WithCancel(context.Background())
	cancel()
	out := filepath.Join(t.TempDir(), "tokens.arrow")
	if got := launchTo(interrupted, io.Discard, "data", "tokenize", rows, "--out", out); got.code != cli.ExitInterrupted {
		t.Errorf("interrupted: exit code %d, %s", got.code, got.errOut)
	}
	if _, err := os.Lstat(out); err == nil {
		t.Error("an interrupted command leaves a file")
	}
}

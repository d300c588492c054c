package trainer

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/datasets"
	"spmoe/datasets/bpe"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// withTokenizer is tiny with a tokenizer of size tokens that was trained on the run's text.
func withTokenizer(t *testing.T, change func(*config.Config)) (cfg config.Config, size int) {
	t.Helper()
	cfg = tiny(t, change)
	text, err := os.ReadFile(cfg.Data[0])
	if err != nil {
		t.Fatal(err)
	}
	tok, err := bpe.Train(t.Context(), slices.Values([][]byte{text}), 300)
	if err != nil {
		t.Fatal(err)
	}
	data, err := tok.JSON()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Tokenizer, cfg.Model.Vocab = filepath.Join(t.TempDir(), "own.json"), 320
	if err := os.WriteFile(cfg.Tokenizer, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return cfg, tok.VocabSize()
}

// A loss in bits a byte is that of the evaluated text: its nats over the bytes that its tokens
// stand for.
func TestBitsPerByte(t *testing.T) {
	t.Parallel()
	cfg, _ := withTokenizer(t, func(c *config.Config) { c.Precision, c.Steps, c.EvalSequences = "fp32", 2, 3 })
	tok, err := datasets.OpenTokenizer(cfg.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := datasets.Open(cfg.Data, datasets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := datasets.NewWindows(datasets.Tokenize(c.HeldOut, tok), datasets.WindowsConfig{Seq: cfg.Seq, Count: 3, Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	row := make([]int32, cfg.Seq+1)
	size := 0
	for range w.All(row) {
		size += len(tok.Decode(row[1:]))
	}
	if size < 2*w.Total()*cfg.Seq {
		t.Fatalf("%d tokens stand for %d bytes: this tests nothing", w.Total()*cfg.Seq, size)
	}
	for _, ranks := range []int{1, 2, 4} {
		cfg.Out = t.TempDir()
		got := train(t, cfg, ranks, "")
		for _, e := range got.evals {
			if want := e.Loss * float64(w.Total()*cfg.Seq) / (math.Ln2 * float64(size)); math.Abs(e.BitsPerByte/want-1) > 1e-12 {
				t.Errorf("%d ranks: %g nats a token are %g bits a byte, want %g", ranks, e.Loss, e.BitsPerByte, want)
			}
		}
		d := got.done[0]
		if _, last := d.HeldOut.BitsPerByte(); last != got.evals[len(got.evals)-1].BitsPerByte {
			t.Errorf("the run ends with %g bits a byte, the evaluation with %g", last, got.evals[len(got.evals)-1].BitsPerByte)
		}
		if per := d.Train.BytesPerToken; math.Abs(per/d.HeldOut.BytesPerToken-1) > 0.1 {
			t.Errorf("training text has %g bytes per token, validation text of the same kind %g", per, d.HeldOut.BytesPerToken)
		}
	}
	if first, last := (events.LossChange{First: math.Ln2, Last: 2 * math.Ln2}).BitsPerByte(); first != 1 || last != 2 {
		t.Errorf("%g and %g bits a byte, want 1 and 2", first, last)
	}
}

// A run goes on with its own copy of the tokenizer, byte for byte the same as without an
// interruption, when the file that it was given is another or gone.
func TestTokenizerIsKept(t *testing.T) {
	t.Parallel()
	cfg, size := withTokenizer(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.SampleTokens = 4, 2, 8 })
	given, err := os.ReadFile(cfg.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	want := train(t, cfg, 2, "")
	for _, folder := range []string{cfg.Out, filepath.Join(cfg.Out, "step-00000002"), filepath.Join(cfg.Out, "step-00000004")} {
		if kept, err := os.ReadFile(filepath.Join(folder, datasets.TokenizerFile)); err != nil || !bytes.Equal(kept, given) {
			t.Errorf("%s keeps %d bytes of %d, %v", folder, len(kept), len(given), err)
		}
	}
	if err := os.Remove(cfg.Tokenizer); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(cfg.Out, "step-00000004")); err != nil {
		t.Fatal(err)
	}
	got := train(t, cfg, 2, filepath.Join(cfg.Out, "step-00000002"))
	if g, w := got.steps[len(got.steps)-1], want.steps[3]; g.Loss != w.Loss || got.done[0].Sample != want.done[0].Sample {
		t.Errorf("resumed: loss %v and sample %q, want %v and %q", g.Loss, got.done[0].Sample, w.Loss, want.done[0].Sample)
	}
	late, err := Rejoin(cfg, 2, nil, false, &reports{})
	if err != nil || late.tokenizer.VocabSize() != size {
		t.Fatalf("a rank that comes late has no tokenizer: %v", err)
	}
	if err := late.Close(); err != nil {
		t.Error(err)
	}
	cfg.Out = t.TempDir()
	if _, err := Prepare(cfg, 2, "", &reports{}); err == nil || !strings.Contains(err.Error(), "own.json") {
		t.Errorf("a new run without the file: %v", err)
	}
}

// A vocabulary that does not hold the tokenizer's is refused; a tokenizer that is part of the
// program is not kept.
func TestTokenizerVocabulary(t *testing.T) {
	t.Parallel()
	cfg, size := withTokenizer(t, func(c *config.Config) { c.Steps = 1 })
	cfg.Model.Vocab = size - 1
	if _, err := Prepare(cfg, 1, "", &reports{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has %d tokens", size)) {
		t.Errorf("error %v", err)
	}
	cfg.Tokenizer, cfg.Model.Vocab = "tiktoken:gpt2", 50304
	stale := filepath.Join(cfg.Out, datasets.TokenizerFile)
	if err := os.MkdirAll(cfg.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stale, []byte("of a run that never saved"), 0o666); err != nil {
		t.Fatal(err)
	}
	train(t, cfg, 1, "")
	for _, folder := range []string{cfg.Out, filepath.Join(cfg.Out, "step-00000001")} {
		if _, err := os.Stat(filepath.Join(folder, datasets.TokenizerFile)); !os.IsNotExist(err) {
			t.Errorf("%s has a tokenizer: %v", folder, err)
		}
	}
}

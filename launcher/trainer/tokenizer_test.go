package trainer

import (
	"math"
	"os"
	"path/filepath"
	"slices"
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
	c, err := datasets.Load(cfg.Data, tok, datasets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := datasets.NewWindows(c.HeldOut, datasets.WindowsConfig{Seq: cfg.Seq, Count: 3, Ranks: 1})
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

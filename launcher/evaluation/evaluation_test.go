package evaluation

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/tensor"
)

// The mean and the standard error of the mean, against figures that were worked out by hand.
func TestSummary(t *testing.T) {
	r := summary([]float64{8, 4, 12, 8}, 4) // 2, 1, 3 and 2 nats a token: deviation sqrt(2/3), of the mean sqrt(2/3)/2
	if r.Loss != 2 || math.Abs(r.StdErr-math.Sqrt(2.0/3)/2) > 1e-15 || r.Windows != 4 || r.Tokens != 16 {
		t.Errorf("%+v", r)
	}
	if one := summary([]float64{8}, 4); one.Loss != 2 || one.StdErr != 0 {
		t.Errorf("of one window: %+v", one)
	}
	r.Bytes = 32
	if math.Abs(r.Perplexity()-math.E*math.E) > 1e-12 || math.Abs(r.BitsPerByte()-1/math.Ln2) > 1e-15 {
		t.Errorf("perplexity %g, %g bits/byte", r.Perplexity(), r.BitsPerByte())
	}
}

// pairs is a tokenizer of two bytes per token, an odd last one alone.
type pairs struct{ datasets.Bytes }

func (pairs) Name() string { return "pairs" }

func (pairs) Encode(text []byte) (ids []int32) {
	for i := 0; i < len(text); i += 2 {
		ids = append(ids, int32(text[i]))
	}
	return ids
}

func (p pairs) Decode(ids []int32) (text []byte) {
	for _, id := range ids {
		text = append(text, byte(id), ' ')
	}
	return text
}

// heldOut is the validation part of a text of n bytes.
func heldOut(t *testing.T, bytes int, tokenizer datasets.Tokenizer) datasets.Stream {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte(strings.Repeat("rank 1 sends 3 rows to rank 2. ", bytes/31)), 0o666); err != nil {
		t.Fatal(err)
	}
	data, err := datasets.Load([]string{path}, tokenizer, datasets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return data.HeldOut
}

// measure runs an evaluation of a model with random weights.
func measure(t *testing.T, ctx context.Context, ranks int, text datasets.Stream, tokenizer datasets.Tokenizer, o Options) (Result, error) {
	t.Helper()
	cfg, err := moe.FlavorByName("debug")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Dim, cfg.Layers, cfg.DenseInter, cfg.Experts, cfg.ExpertInter = 32, 2, 64, 8, 32
	all := make([]Result, ranks)
	err = collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		m, err := moe.NewInference(cfg, moe.Unquantized(tensor.FP32), o.Seq, c, nil)
		if err != nil {
			return err
		}
		for _, p := range m.Params() {
			p.Fill(p.Work.F32(), 0, 1)
		}
		all[c.Rank()], err = Run(ctx, tensor.NewExec(), c, m, text, tokenizer, o)
		return err
	})
	for rank := range all {
		all[rank].Time = 0
		if all[rank] != all[0] {
			t.Errorf("rank %d says %+v, rank 0 %+v", rank, all[rank], all[0])
		}
	}
	return all[0], err
}

// The result depends neither on the number of ranks nor on the batch, also where some ranks have
// less to do than others, or nothing. What it is, the command's tests hold against training.
func TestRanksAndBatches(t *testing.T) {
	text := heldOut(t, 31000, datasets.Bytes{})
	for _, windows := range []int{1, 3, 8, 1 << 30} {
		want, err := measure(t, context.Background(), 1, text, datasets.Bytes{}, Options{Seq: 32, Windows: windows, Batch: 5})
		if err != nil {
			t.Fatal(err)
		}
		if n := min(windows, int(text.Len()-1)/32); want.Windows != n || want.Tokens != int64(32*n) || want.Bytes != want.Tokens || !(want.Loss > 1) {
			t.Errorf("%d windows: %+v", windows, want)
		}
		for _, ranks := range []int{1, 2, 4} {
			for _, batch := range []int{1, 2, 100} {
				got, err := measure(t, context.Background(), ranks, text, datasets.Bytes{}, Options{Seq: 32, Windows: windows, Batch: batch})
				if err != nil || got != want {
					t.Errorf("%d ranks, %d windows in passes of %d: %+v (%v), want %+v", ranks, windows, batch, got, err, want)
				}
			}
		}
	}
}

// Bits a byte count the bytes that tokens stand for.
func TestBytes(t *testing.T) {
	r, err := measure(t, context.Background(), 2, heldOut(t, 31000, pairs{}), pairs{}, Options{Seq: 16, Windows: 4, Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := r.Loss / math.Ln2 / 2; r.Bytes != 2*r.Tokens || math.Abs(r.BitsPerByte()-want) > 1e-12 {
		t.Errorf("%+v: %g bits/byte, want %g", r, r.BitsPerByte(), want)
	}
}

// With a separator a token does not see what is before its document.
func TestSeparator(t *testing.T) {
	text, end := heldOut(t, 31000, datasets.Bytes{}), int32(' ')
	o := Options{Seq: 32, Windows: 4, Batch: 1}
	want, err := measure(t, context.Background(), 1, text, datasets.Bytes{}, o)
	if err != nil {
		t.Fatal(err)
	}
	losses := map[int32]float64{}
	for _, end := range []int32{end, '~'} { // which is nowhere
		o.Separator = &end
		got, err := measure(t, context.Background(), 2, text, datasets.Bytes{}, o)
		if err != nil {
			t.Fatal(err)
		}
		losses[end] = got.Loss
	}
	if losses['~'] != want.Loss || losses[end] == want.Loss {
		t.Errorf("the loss is %g, with words apart %g, with a separator that is nowhere %g", want.Loss, losses[end], losses['~'])
	}
}

func TestErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o := Options{Seq: 32, Windows: 4, Batch: 1}
	if _, err := measure(t, ctx, 2, heldOut(t, 31000, datasets.Bytes{}), datasets.Bytes{}, o); !errors.Is(err, ErrInterrupted) {
		t.Errorf("a context that has ended gives %v", err)
	}
	_, err := measure(t, context.Background(), 2, heldOut(t, 310, datasets.Bytes{}), datasets.Bytes{}, o)
	if err == nil || !strings.Contains(err.Error(), "validation data") {
		t.Errorf("a short text gives %v", err)
	}
}

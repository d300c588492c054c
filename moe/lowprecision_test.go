package moe

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// TestLowPrecisionGivesTheBitsOfOneRank: scales per tensor and random numbers belong to all rows of
// a pass, whichever ranks have them.
func TestLowPrecisionGivesTheBitsOfOneRank(t *testing.T) {
	const sequences, seq = 8, 128 // whole blocks of fp8-block
	cfg := with(quantizable(64, 64), func(c *Config) {
		c.Layers, c.MTPLayers, c.BalanceAlpha, c.QRank, c.MaxPositions, c.TopK = 3, 1, 0.1, 32, seq, 2
	})
	b := batchOf(17, sequences, seq, cfg.Vocab)
	for _, precision := range []string{"nvfp4", "fp8-block", "mxfp4-mxfp8"} {
		t.Run(precision, func(t *testing.T) {
			want := trainedBy(t, cfg, precision, "onesided", b, 1, 1)
			for _, c := range [][2]int{{4, 2}, {8, 1}} {
				got := trainedWith(t, cfg, defaultOutputSizes(), precision, "onesided", b, c[0], c[1], 1)
				got.equals(t, fmt.Sprintf("np %d, ep %d", c[0], c[1]), want)
			}
			trainedBy(t, cfg, precision, "standard", b, 4, 1).equals(t, "np 4, standard exchange", want)
			trainedBy(t, cfg, precision, "onesided", b, 2, 2).equals(t, "np 2, 2 threads", want)
		})
	}
}

// TestLowPrecisionLearns: the loss falls about as far as in BF16.
func TestLowPrecisionLearns(t *testing.T) {
	cfg := with(quantizable(64, 64), func(c *Config) { c.Layers, c.MTPLayers = 3, 0 })
	_, want := learn(t, cfg, Unquantized(tensor.BF16), 10)
	for _, name := range []string{"nvfp4", "fp8-block", "mxfp4", "mxfp6-e3m2"} {
		p, err := PrecisionByName(name)
		if err != nil {
			t.Fatal(err)
		}
		first, last := learn(t, cfg, p, 10)
		t.Logf("%s: loss %.3f -> %.3f, in BF16 %.3f", name, first, last, want)
		if !(last < first-0.5) || last > want+0.25 {
			t.Errorf("%s: the loss went from %.3f to %.3f, that of BF16 to %.3f", name, first, last, want)
		}
	}
}

// TestLostRank: a rank that is gone when the others compare magnitudes ends their passes.
func TestLostRank(t *testing.T) {
	o := DefaultOptions().NVFP4
	o.Stochastic, o.BF16Tail = false, 0 // no random numbers: comparing is the first collective
	cfg, gone := quantizable(64, 64), errors.New("gone")
	err := collective.NewWorld(2).Run(func(c *collective.Comm) error {
		m, err := New(cfg, o.precision(), 16, c, nil)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			return gone
		}
		_, err = m.Train(tensor.NewExec(), batchOf(1, 2, 16, cfg.Vocab))
		if err == nil || !strings.Contains(err.Error(), "layer 0, self_attn.q_proj: comparing magnitudes") {
			t.Errorf("the pass ended with %v", err)
		}
		return nil
	})
	if !errors.Is(err, gone) {
		t.Error(err)
	}
}

package moe

// Ranks that share sequences train with the bits of one rank.

import (
	"fmt"
	"testing"

	"spmoe/collective/mesh"
)

// The output has one block of the vocabulary or several, and one round or several, which end at any
// multiple of 16 rows.
func TestContextsInBlocks(t *testing.T) {
	const sequences, seq = 4, 128
	for _, mtp := range []int{0, 1} {
		cfg := with(headModel(mtp), func(c *Config) { c.Heads, c.MaxPositions, c.BalanceAlpha = 4, seq, 0.1 })
		b := batchOf(23, sequences, seq, cfg.Vocab)
		for _, rows := range []int{4 * seq, seq * (1 + mtp), 96, 48} {
			for _, precision := range []string{"bf16", "fp32"} {
				want := trainedWith(t, cfg, smallSizes(rows), precision, "onesided", b, 1, 1, 1, 1)
				for _, l := range []mesh.Layout{
					{World: 2, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, EP: 2},
					{World: 4, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, EP: 2},
					{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 1},
					{World: 8, PP: 1, DPReplicate: 2, DPShard: 1, CP: 2, TP: 2, EP: 4},
				} {
					trainedOn(t, cfg, smallSizes(rows), precision, "onesided", b, l, 1, sequences/l.Batch()).
						equals(t, fmt.Sprintf("%s, mtp %d, %d rows, np %d, %v", precision, mtp, rows, l.World, l), want)
				}
			}
		}
	}
}

// Attention stays within documents, which begin anywhere.
func TestContextsWithDocuments(t *testing.T) {
	const sequences, seq = 2, 128
	cfg := with(headModel(0), func(c *Config) { c.Heads, c.MaxPositions = 4, seq })
	b := batchOf(29, sequences, seq, cfg.Vocab)
	plain := trainedWith(t, cfg, defaultOutputSizes(), "bf16", "onesided", b, 1, 1, 1, 1)
	for i := range sequences * seq {
		first := 0
		for _, begin := range []int{23, 64, 101} {
			if i%seq >= begin {
				first = begin
			}
		}
		b.First = append(b.First, int32(first))
	}
	want := trainedWith(t, cfg, defaultOutputSizes(), "bf16", "onesided", b, 1, 1, 1, 1)
	if want.loss == plain.loss {
		t.Fatal("documents change nothing")
	}
	for _, l := range []mesh.Layout{
		{World: 2, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, EP: 2}, {World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 4},
		{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, TP: 4, EP: 2},
	} {
		trainedOn(t, cfg, defaultOutputSizes(), "bf16", "onesided", b, l, 1, sequences).equals(t, fmt.Sprint(l), want)
	}
}

// Products of a tp group read rows where they lie if ranks have many of them.
func TestTensorGroupWithManyRows(t *testing.T) {
	const seq = 4 * (gatheredRows/2 + 32)
	for _, precision := range []string{"bf16", "mxfp8", "fp8-tensor"} {
		cfg := with(headModel(1), func(c *Config) { c.Heads, c.MaxPositions = 4, seq })
		b := batchOf(31, 1, seq, cfg.Vocab)
		want := trainedWith(t, cfg, defaultOutputSizes(), precision, "onesided", b, 1, 1, 1, 1)
		for _, l := range []mesh.Layout{
			{World: 2, PP: 1, DPReplicate: 1, DPShard: 1, TP: 2, EP: 2}, {World: 4, PP: 1, DPReplicate: 1, DPShard: 1, TP: 4, EP: 1},
			{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 4},
		} {
			trainedOn(t, cfg, defaultOutputSizes(), precision, "onesided", b, l, 1, 1).equals(t, fmt.Sprint(precision, l), want)
		}
	}
}

// Sequences on several hosts have the bits of one rank, in blocks and rounds of any size.
func TestContextsOnHostsInBlocks(t *testing.T) {
	const sequences, seq = 4, 128
	for _, mtp := range []int{0, 1} {
		cfg := with(headModel(mtp), func(c *Config) { c.Heads, c.MaxPositions, c.BalanceAlpha, c.Vocab = 4, seq, 0.1, 517 })
		b := batchOf(23, sequences, seq, cfg.Vocab)
		for _, rows := range []int{seq * (1 + mtp), 96, 48} {
			for _, precision := range []string{"bf16", "fp32"} {
				want := trainedWith(t, cfg, smallSizes(rows), precision, "onesided", b, 1, 1, 1, 1)
				for _, c := range []struct {
					hosts  int
					layout mesh.Layout
				}{
					{2, mesh.Layout{World: 2, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, EP: 2}},
					{2, mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 4}},
					{4, mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, EP: 4}},
					{4, mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 4}},
					{2, mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 4}},
				} {
					trainedOnHosts(t, cfg, smallSizes(rows), precision, "onesided", b, c.layout, c.hosts, 1, sequences/c.layout.Batch()).
						equals(t, fmt.Sprintf("%s, mtp %d, %d rows, %v on %d hosts", precision, mtp, rows, c.layout, c.hosts), want)
				}
			}
		}
	}
}

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
					{World: 8, PP: 1, DPReplicate: 2, DPShard: 1, CP: 4, EP: 4},
				} {
					trainedOn(t, cfg, smallSizes(rows), precision, "onesided", b, l, 1, sequences/l.Batch()).
						equals(t, fmt.Sprintf("%s, mtp %d, %d rows, np %d, %v", precision, mtp, rows, l.World, l), want)
				}
			}
		}
	}
}

package datasets

import "testing"

func BenchmarkBuiltin(b *testing.B) {
	for b.Loop() {
		c, err := Builtin(Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(c.Train.Bytes() + c.HeldOut.Bytes())
	}
}

// BenchmarkNext reads a rank's part of 16 rows of 1024 tokens; bytes are those of the ids written.
func BenchmarkNext(b *testing.B) {
	const seq, rows = 1024, 16
	s := Stream{narrow: make([]byte, 8<<20)}
	l := newLoader(b, s, LoaderConfig{Seq: seq, GlobalBatch: 8 * rows, Rank: 3, Ranks: 8, Seed: 1})
	dst := make([]int32, rows*(seq+1))
	b.SetBytes(int64(4 * len(dst)))
	for b.Loop() {
		l.Next(dst)
	}
}

package gemm

import "testing"

// Room is close to what the blocked kernels allocate. On tiers that widen BF16 it is up to half.
func TestRoom(t *testing.T) {
	eachTier(t, func(t *testing.T, k *kernels) {
		for _, c := range []struct{ m, n, k int }{{1024, 512, 768}, {400, 1500, 96}, {2048, 256, 1408}} {
			var s Scratch
			var room Room
			a, b := newMatrix[uint16](c.m, c.k, false, 0), newMatrix[uint16](c.k, c.n, false, 0)
			sum := newMatrix[float32](c.m, c.n, false, 0)
			k.bf16(&s, sum.View, a.View, b.View, mode{})
			if len(s.rows[0].words) == 0 {
				t.Skip("it does not pack rows")
			}
			room.add(float64(c.m), float64(c.n), float64(c.k), 2, 1, k.tiles)
			const off = 2.5
			if ratio := room.Bytes() / float64(s.bytes()); ratio < 1/off || ratio > off {
				t.Errorf("[%d, %d]·[%d, %d] takes %d bytes, counted are %.0f", c.m, c.k, c.k, c.n, s.bytes(), room.Bytes())
			}
		}
	})
}

// bytes returns the size of all buffers.
func (s *Scratch) bytes() (n int) {
	for _, b := range append(s.rows[:], s.a, s.b, s.sums, s.unrounded, s.partial, s.spans, s.edge, s.chunks, s.decoded[0], s.decoded[1]) {
		n += 4 * len(b.words)
	}
	return n
}

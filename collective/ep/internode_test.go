package ep

// What a rank's exchange believes of what other hosts send.

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// A header that is damaged is an error, or names places that there are: a proxy writes nowhere
// else.
func TestDamagedHeader(t *testing.T) {
	b := newBatch(40, 8, 3, 8, small)
	refused := 0
	err := hostsOf(1)(2, func(c *collective.Comm) error {
		s, err := NewOneSided(c, b.experts)
		if err != nil {
			return err
		}
		var r result
		if err := b.slice(20*c.Rank(), 20*c.Rank()+20).pass(newExec(c), s, s.layout, c.Rank(), tensor.FP32, &r); err != nil {
			return err
		}
		if c.Rank() != 0 {
			return nil
		}
		part := b.slice(0, 20)
		h := &Handle{tokens: part.tokens(), slots: b.slots}
		h.perRank = make([]int32, 2)
		for owner := range h.perRank {
			h.perRank[owner] = s.starts(1, owner, s.hosts.next)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			p := route{rows: 1 + rng.IntN(20)}
			p.header = make([]byte, p.rows+rng.IntN(40))
			for i := range p.header {
				p.header[i] = byte(rng.IntN(6)) // of which many are possible
			}
			if err := s.hosts.read(h, &p, 1); err != nil {
				refused++
				continue
			}
			for i, place := range p.places {
				if place >= 0 && (p.owners[i] != 0 || place >= h.perRank[0]) {
					return fmt.Errorf("place %d of rank %d, which receives %d rows", place, p.owners[i], h.perRank[0])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if refused == 0 || refused == 2000 {
		t.Errorf("%d of 2000 headers were refused", refused)
	}
}

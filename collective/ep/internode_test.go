package ep

// What a rank's exchange believes of what other hosts send.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// A token's row crosses the network once per host that it visits, in both directions of a pass. The
// experts' rows come back one per choice. Headers take a byte per row and per choice, weights and
// their gradients four per choice.
func TestBytesBetweenHosts(t *testing.T) {
	const tokens, hidden, slots, experts, each = 10, 8, 6, 8, 2
	b := newBatch(4*tokens, hidden, slots, experts, small)
	host := func(token int) int { return token / (2 * tokens) }
	away := func(i int) bool { return b.topk[i] >= 0 && int(b.topk[i])/(experts/2) != host(i/slots) }
	near := *b // the choices on the host of the token
	near.topk = slices.Clone(b.topk)
	for i := range near.topk {
		if away(i) {
			near.topk[i] = -1
		}
	}
	err := hostsOf(each)(4, func(c *collective.Comm) error {
		s, err := NewOneSided(c, experts)
		if err != nil {
			return err
		}
		proxy := (c.Rank() + each) % 4
		var rows, choices, back int64 // rows and choices on the other host, choices of the proxy there on this one
		last := -1
		for i := range b.topk {
			switch token := i / slots; {
			case !away(i):
			case token/tokens == proxy:
				back++
			case token/tokens == c.Rank():
				choices++
				if token != last {
					rows, last = rows+1, token
				}
			}
		}
		var sent [2][2]int64
		for i, all := range []*batch{&near, b} {
			part, h, r, ex := all.slice(tokens*c.Rank(), tokens*(c.Rank()+1)), &Handle{}, &result{}, newExec(c)
			before := c.Sent()
			if err := part.forward(ex, s, h, s.layout, c.Rank(), tensor.FP32, r); err != nil {
				return err
			}
			sent[i][0] = c.Sent() - before
			if err := part.backward(ex, s, h, s.layout, c.Rank(), tensor.FP32, r); err != nil {
				return err
			}
			sent[i][1] = c.Sent() - before - sent[i][0]
		}
		forward, backward := rows*(4*hidden+1)+choices+back*4*hidden, rows*4*hidden+choices*4+back*(4+4*hidden)
		if got := sent[1][0] - sent[0][0]; got != forward || 2*rows > choices {
			t.Errorf("rank %d sent %d bytes in the forward pass, want %d: %d rows for %d choices", c.Rank(), got, forward, rows, choices)
		}
		if got := sent[1][1] - sent[0][1]; got != backward {
			t.Errorf("rank %d sent %d bytes in the backward pass, want %d", c.Rank(), got, backward)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

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

package moe

// Gradients of dense weights for sequences that ranks share. The gradient of a sequence is one
// chain of sums over its parts, in their order.
//
// If a sequence is on several hosts, the chain goes from host to host: the FP32 sums of a weight
// travel from each rank to the one with the same place on the next host, which goes on with them.
// The last host has the gradient, and the others add zeros. Of a weight [N, K] each host sends
// 4·N·K bytes per pass. If x and the columns of dy travelled instead, for T tokens per host on G
// hosts, a host would receive 2·T·(K·(G-1) + N·(G-1)/G) bytes: more for 16B on two hosts from
// T = 3,400 on, and cp is for long sequences. While one host computes a weight, the next computes
// the one before.

import (
	"fmt"

	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// computeParts is compute for ranks that have parts of sequences. If sums cannot go on, the parts
// of a sequence are joined first.
func (w wgrad) computeParts(p phase, lists [][][]byte, at, n int) error {
	l, parts := w.layer, p.cp.ranks
	sum := l.gradientTree(p, len(lists)/parts, false)
	for first := 0; first < len(lists); first += parts {
		to, _ := sum.next()
		some := lists[first : first+parts]
		if err := w.addParts(p, to, some, at, n, first, false); err != nil {
			return err
		}
		sum.push()
	}
	p.pushGrad(&l.weight)
	return nil
}

// addParts computes the gradient over parts of a sequence: those of some ranks, from number first
// on. goesOn says that to has the sums over earlier parts.
func (w wgrad) addParts(p phase, to tensor.Tensor, lists [][][]byte, at, n, first int, goesOn bool) error {
	l := w.layer
	chain := l.goesOn()
	if !chain {
		lists = [][][]byte{joined(p.ex, lists, at, n)}
	}
	for i, list := range lists {
		if chain {
			list = list[at : at+n]
		}
		if !w.product(p, to, false, goesOn || i > 0, list, chain && first+i == l.host.comm.Rank()) {
			return fmt.Errorf("the operands of rank %d do not fit", first+i)
		}
	}
	return nil
}

// sumChain is this rank's part of the chains of the weights that wait, if sequences are on several
// hosts.
type sumChain struct {
	*remote
	sums     []tensor.Tensor // of this rank's rows of each weight
	received int             // sums that have been used
}

// beginChain begins to receive the sums of the host before this one.
func (h *host) beginChain(p phase) *sumChain {
	if p.cp == nil || p.cp.remote == nil || h.waiting[0].rows != nil {
		return nil
	}
	c := &sumChain{remote: p.cp.remote}
	for _, w := range h.waiting {
		var sum tensor.Tensor
		if w.layer.ownRows() > 0 {
			sum = p.ex.New(tensor.FP32, w.layer.own().Dims()...)
			if before := c.comm.Host() - 1; before >= 0 {
				c.remote.received.Recv(c.neighbor(before), sum.Bytes())
			}
		}
		c.sums = append(c.sums, sum)
	}
	return c
}

// neighbor returns the rank with this one's place on another host.
func (c *sumChain) neighbor(host int) int { return c.at(host, c.place(c.comm.Rank())) }

// compute goes on with the sums of the weight that is next, from the operands of this host.
func (c *sumChain) compute(p phase, w wgrad, lists [][][]byte, at, n int) error {
	l, sum := w.layer, c.sums[0]
	c.sums = c.sums[1:]
	if l.ownRows() == 0 {
		return nil
	}
	host, last := c.comm.Host(), len(c.comm.Hosts())-1
	if host > 0 {
		c.received++
		if err := c.await(p); err != nil {
			return err
		}
	}
	if err := w.addParts(p, sum, lists, at, n, 0, host > 0); err != nil {
		return err
	}
	to, adds := l.nextGrad(p)
	switch {
	case host < last:
		c.sent.Send(c.neighbor(host+1), sum.Bytes())
		if !adds {
			tensor.Zero(p.ex, to)
		}
	case adds:
		add(p.ex, to, sum)
	default:
		tensor.Convert(p.ex, to.Mat(), sum.Mat())
	}
	p.pushGrad(&l.weight)
	return nil
}

// await waits for the sums of the next weight.
func (c *sumChain) await(p phase) error {
	defer p.ex.Enter(p.ex.Enter(profile.Collectives))
	return c.remote.received.WaitFirst(c.received)
}

// end returns when the next host has all sums, and err if it is not nil.
func (c *sumChain) end(p phase, err error) error {
	if c == nil || err != nil {
		return err
	}
	return c.wait(p)
}

// goesOn reports whether a sum over rows can go on with that of earlier ones.
func (l *linear) goesOn() bool {
	if !l.mx.quantizesWgrad() {
		return (&Recipe{Sum: l.sum}).chains()
	}
	return l.mx.chains()
}

// joined returns n buffers of ranks, from number at on, each as one buffer with the rows of all.
func joined(ex *tensor.Exec, lists [][][]byte, at, n int) (all [][]byte) {
	for i := at; i < at+n; i++ {
		first := lists[0][i]
		if n > 2 && (i-at)%3 == 2 { // the largest magnitude, which is that of all ranks
			all = append(all, first)
			continue
		}
		to := ex.New(tensor.UINT8, len(lists)*len(first)).Bytes()
		for r, list := range lists {
			if !ex.Dry() {
				copy(to[r*len(first):], list[i])
			}
		}
		all = append(all, to)
	}
	return all
}

package moe

// The head for sequences that ranks share. The ranks of a host divide the rows of the sequence: in
// each round of training they take rows that are next to each other, with the tokens of any rank.
// So the gradient of the weight has the sums of one rank. They read hidden states where they lie,
// and write their gradients there.
//
// If a sequence is on several hosts, the hidden states of all tokens travel to each host, which
// computes the whole head: the gradients of logits, 2·vocab bytes per token, do not travel. Each
// host computes a piece of the weight's gradient.

import "spmoe/tensor"

// forward adds the cross-entropy of each token that has a target to the losses of its sequence. In
// training it runs the backward pass as well: it adds to the gradient of the weight and sets dh.
//
// If there are two predictions, a sequence's gradient of the weight is the sum over the rows of the
// first prediction, then over those of the second. Rows are numbered in that order: sequence by
// sequence, prediction by prediction.
func (o *output) forward(p phase, all []prediction) error {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	p.saved, p.fused, p.layer = p.scratch, true, p.lastLayer // nothing is left for a later phase
	p.in(Head)
	for i := range all {
		a := &all[i]
		a.x = a.norm.forward(p, p.scratch, a.h.Mat(), &a.state)
	}
	for i := range all {
		if p.train {
			all[i].dx = like(p.scratch, all[i].x)
		}
	}
	if err := o.allRows(p, all); err != nil || !p.train {
		return err
	}
	p.saved, p.fused = p.arena, false // the gradient of the norm's weight stays in its state
	for i := range all {
		a := &all[i]
		a.norm.backward(p, a.dh.Mat(), a.dx.Mat(), false, &a.state)
	}
	return nil
}

// allRows computes losses and, in training, gradients of all rows.
func (o *output) allRows(p phase, all []prediction) error {
	switch {
	case p.cp != nil:
		return o.contextForward(p, all)
	case p.train:
		return o.train(p, all)
	}
	o.rows(p, all, 0, len(p.sequences)*len(all)*p.batch.Seq, rowGradients{})
	return nil
}

// contextForward computes losses and, in training, gradients for a sequence that ranks share.
func (o *output) contextForward(p phase, all []prediction) error {
	c, whole := p.cp, len(all)*p.batch.Seq
	losses := p.scratch.New(tensor.UINT8, 8*whole) // of all rows, on the first rank of each host
	var x [][]byte
	local := [][]byte{losses.Bytes()}
	for i := range all {
		a := &all[i]
		x = append(x, a.x.Bytes())
		if !p.train {
			a.dx = a.x // it is not written
		}
		local = append(local, a.dx.Bytes())
	}
	peers, err := c.group.open(p.ex, x, local...)
	if err != nil {
		return err
	}
	here := c.group.ranksHere()
	o.placePeers(p, all, peers.lists)
	o.rowLosses = float64s(peers.lists[here[0]][len(all)])
	if p.train {
		err = o.train(p, all)
		peers.bytes = whole / len(here) * (2*len(all[0].x.Bytes())/c.tokens + 8)
	} else {
		for i := range all {
			n := p.batch.Seq / len(here)
			lo := i*p.batch.Seq + n*c.group.place(c.rank)
			o.rows(p, all, lo, lo+n, rowGradients{})
		}
		peers.bytes = 8 * whole / len(here)
	}
	o.rowLosses = nil
	if err = peers.close(p.ex, err); err == nil && c.rank == 0 && !p.ex.Dry() {
		o.sumRows(p, all, float64s(losses.Bytes()))
	}
	return err
}

// placePeers sets the rows that this rank may read and write, those of the sequence. The hosts of
// other tokens compute their gradients, too, and those computed here are dropped.
func (o *output) placePeers(p phase, all []prediction, lists [][][]byte) {
	for i := range all {
		a := &all[i]
		a.peers = nil
		dropped := a.dx
		if p.train && p.cp.group.sent != nil {
			dropped = like(p.scratch, a.dx)
		}
		for r, list := range lists {
			x, dx := tensor.MatrixFromBytes(list[i], a.x.DType(), a.x.Dim(0), a.x.Dim(1)), dropped.Mat()
			if p.cp.group.isHere(r) {
				dx = tensor.MatrixFromBytes(list[len(all)+1+i], a.dx.DType(), a.dx.Dim(0), a.dx.Dim(1))
			}
			a.peers = append(a.peers, predictionRows{x, dx})
		}
	}
}

// sumRows adds the losses of all rows to those of the sequence, chunk by chunk as one rank does.
func (o *output) sumRows(p phase, all []prediction, losses []float64) {
	seq := p.batch.Seq
	rounds := o.sizes.rounds(o.weight.W.Dim(0), len(losses), 1, true)
	for i := range rounds.count() {
		lo, hi := rounds.rows(i)
		most := o.chunkRows(len(all), seq, lo, hi)
		for at, n := lo, 0; at < hi; at += n {
			n = chunkAt(len(all), seq, at, hi, most)
			sum := 0.0
			for _, loss := range losses[at : at+n] {
				sum += loss
			}
			a, _ := rowAt(all, seq, at)
			*p.sequences[0].of(a.ahead) += sum
		}
	}
}

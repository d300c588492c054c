package moe

// The head for sequences that ranks share. In each round of training, the ranks take rows that are
// next to each other, with the tokens of any rank. So the gradient of the weight has the sums of
// one rank. They read hidden states where they lie, and write their gradients there. In an
// evaluation each rank takes its own tokens.
//
// If a sequence is on several hosts, the hidden states of all tokens travel to each host, and their
// gradients return. The gradient of the weight needs those of all logits, 2·vocab bytes per token.
// They do not travel: each rank computes the logits of its part of the vocabulary again, for the
// rows of other hosts, from the maximum and the sum of each row's softmax.

import (
	"fmt"
	"slices"

	"spmoe/tensor"
)

// contextForward computes losses and, in training, gradients for a sequence that ranks share.
func (o *output) contextForward(p phase, all []prediction) error {
	c, whole := p.cp, len(all)*p.batch.Seq
	losses := p.scratch.New(tensor.UINT8, 8*whole) // of all rows, on the first rank of each host
	mine := [][]byte{losses.Bytes()}
	for i := range all {
		a := &all[i]
		if !p.train {
			a.dx = a.x // it is not written
		}
		mine = append(mine, a.x.Bytes(), a.dx.Bytes())
	}
	mine, err := c.addCopies(p, mine)
	if err != nil {
		return err
	}
	peers, err := c.group.open(p, mine)
	if err != nil {
		return err
	}
	if err := o.placePeers(p, all, peers.lists, 8*whole); err != nil {
		return peers.close(p, err)
	}
	o.rowLosses = float64s(peers.lists[0][0])
	if p.train {
		err = o.train(p, all)
		peers.bytes = whole / c.ranks * (2*len(all[0].x.Bytes())/c.tokens + 8)
	} else {
		for i := range all {
			lo := i*p.batch.Seq + c.first()
			o.rows(p, all, lo, lo+c.tokens, rowGradients{})
		}
		peers.bytes = 8 * whole / c.ranks
	}
	o.rowLosses = nil
	if err = peers.close(p, err); err == nil {
		err = o.returnRows(p, all, losses.Bytes(), mine)
	}
	if err == nil && c.rank == 0 && !p.ex.Dry() {
		o.sumRows(p, all, float64s(losses.Bytes()))
	}
	return err
}

// addCopies appends, in training, the hidden states of the ranks with this one's place on other
// hosts, and memory for their gradients, in the order of mine.
func (c *contextPart) addCopies(p phase, mine [][]byte) ([][]byte, error) {
	if c.remote == nil || !p.train {
		return mine, nil
	}
	var x [][]byte
	for i := 1; i < len(mine); i += 2 {
		x = append(x, mine[i])
	}
	copies, err := c.remote.toHosts(p, x, everywhere)
	for _, b := range copies {
		mine = append(mine, b, p.ex.New(tensor.UINT8, len(b)).Bytes())
	}
	return mine, err
}

// placePeers sets the rows that this rank may read and write: those of all ranks or, in an
// evaluation, of this host. lists has the buffers of the ranks of this host.
func (o *output) placePeers(p phase, all []prediction, lists [][][]byte, losses int) error {
	c := p.cp
	for i := range all {
		a := &all[i]
		a.peers = nil
		for r := range c.ranks {
			place, number := r, 0
			if c.remote != nil {
				place, number = c.remote.copyOf(r)
			}
			if number > 0 && !p.train {
				a.peers = append(a.peers, predictionRows{})
				continue
			}
			list := lists[place][1+2*len(all)*number:]
			x, ok := rowsOf(list[2*i], a.x.DType(), a.x.Dim(0), a.x.Dim(1))
			dx, fits := rowsOf(list[2*i+1], a.dx.DType(), a.dx.Dim(0), a.dx.Dim(1))
			if !ok || !fits || len(lists[0][0]) != losses {
				return fmt.Errorf("the hidden states of rank %d do not fit", r)
			}
			a.peers = append(a.peers, predictionRows{x, dx})
		}
	}
	return nil
}

// returnRows returns the gradients of hidden states to the hosts of their tokens, and losses to the
// first rank. mine has this rank's buffers, with those of copies.
func (o *output) returnRows(p phase, all []prediction, losses []byte, mine [][]byte) error {
	c := p.cp
	r := c.remote
	if r == nil {
		return nil
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	place := r.place(c.rank)
	// rows returns those of a rank that a host has computed, in the copy with some number of mine
	rows := func(host, owner, number int) (parts [][]byte) {
		if r.place(owner) != place {
			return nil
		}
		o.hostRows(p, all, host, func(lo, hi int) {
			if owner == 0 {
				parts = append(parts, losses[8*lo:8*hi])
			}
			for n := 0; lo < hi && p.train; lo += n {
				which, token := lo/p.batch.Seq, lo%p.batch.Seq
				n = min(hi-lo, c.tokens-token%c.tokens)
				if token/c.tokens == owner {
					row := all[which].dx.Dim(1) * all[which].dx.DType().Size()
					parts = append(parts, mine[2+2*(len(all)*number+which)][token%c.tokens*row:][:n*row])
				}
			}
		})
		return parts
	}
	r.exchange(func(rank int) [][]byte {
		_, number := r.copyOf(rank)
		return rows(r.comm.Host(), rank, number)
	}, func(rank int) [][]byte {
		if r.place(rank) != place {
			return nil
		}
		return rows(r.comm.HostOf(rank), c.rank, 0)
	})
	return r.wait(p)
}

// hostRows yields the rows [lo, hi) whose losses a host of the group computes.
func (o *output) hostRows(p phase, all []prediction, host int, yield func(lo, hi int)) {
	c := p.cp
	here := c.remote.comm.Hosts()[host]
	first, last := here[0], here[len(here)-1]
	if !p.train {
		for i := range all {
			yield(i*p.batch.Seq+first*c.tokens, i*p.batch.Seq+(last+1)*c.tokens)
		}
		return
	}
	rounds := o.rounds(p, all)
	for i := range rounds.count() {
		lo, _ := rounds.part(i, first)
		if _, hi := rounds.part(i, last); lo < hi {
			yield(lo, hi)
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

// logitsAgain computes the gradients of the logits of some tokens for rows [lo, hi), which another
// host has computed: [rows, tokens].
func (o *output) logitsAgain(p phase, all []prediction, rows rowGradients, lo, hi int, tokens [2]int) tensor.Matrix {
	n, cols := hi-lo, tokens[1]-tokens[0]
	logits, d := p.ex.New(tensor.FP32, n, cols).Mat(), p.ex.New(rows.x.DType(), n, cols).Mat()
	o.sum.Multiply(p.ex, logits, rows.x.Slice(0, n).Mat(), o.weight.W.Slice(tokens[0], tokens[1]).Mat().T())
	seq := p.batch.Seq
	for at, n := lo, 0; at < hi && !p.ex.Dry(); at += n {
		a, token := rowAt(all, seq, at)
		n = min(hi-at, seq-token)
		from, end := at-lo, at-lo+n
		o.again.Resume(a.targets[token:token+n], float64s(rows.softmax.Bytes())[2*from:2*end])
		o.again.Gradient(p.ex, d.RowSlice(from, end), logits.RowSlice(from, end), tokens[0], a.scale)
	}
	return d
}

// addOfHosts is add if sequences are on several hosts.
func (g *outputGradient) addOfHosts(p phase, all []prediction, round int, mine [][]byte) error {
	if round == 0 {
		if err := g.begin(p, nil); err != nil {
			return err
		}
		o, all := g.o, slices.Clone(all) // so that all need not be on the heap in other runs
		g.ranks[0].again = func(rows rowGradients, lo, hi int, tokens [2]int) tensor.Matrix {
			return o.logitsAgain(p, all, rows, lo, hi, tokens)
		}
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	peers, err := g.exchangeRound(p, all, round, mine)
	if err != nil {
		return err
	}
	if g.o.weight.ownRows() > 0 {
		g.addRound(p, round)
		peers.bytes = g.bytesReadHere(p, round)
	}
	return peers.close(p, nil)
}

// bytesReadHere is bytesRead if sequences are on several hosts: of their rows, hidden states only.
func (g *outputGradient) bytesReadHere(p phase, round int) (sum int) {
	tokens := g.o.piece[1] - g.o.piece[0]
	for rank := range p.cp.ranks {
		lo, hi := g.mine.part(round, rank)
		perRow := g.o.weight.W.Dim(1)
		if p.cp.remote.isHere(rank) {
			perRow += tokens
		}
		if tokens > 0 {
			sum += (hi - lo) * perRow * g.kept.x.DType().Size()
		}
	}
	return sum
}

// exchangeRound opens the rows of a round to the ranks of this host: own, this rank's, and those of
// the ranks with its place on other hosts. It sets the operands to those of all ranks.
func (g *outputGradient) exchangeRound(p phase, all []prediction, round int, own [][]byte) (o openBuffers, err error) {
	r, room, seq, operands := p.cp.remote, g.mine.room(), p.batch.Seq, &g.ranks[0].operands
	softmax, err := r.toHosts(p, [][]byte{g.kept.softmax.Bytes()}, everywhere)
	if err != nil {
		return o, err
	}
	mine := append(slices.Clip(own), softmax...)
	for rank := range r.comm.Size() {
		if place, number := r.copyOf(rank); place != r.place(r.comm.Rank()) || number == 0 {
			continue
		}
		x := like(&p.ex.Arena, g.kept.x)
		lo, hi := g.mine.part(round, rank)
		for at, n := lo, 0; at < hi; at += n {
			a, token := rowAt(all, seq, at)
			from := a.rows(token, min(hi-at, seq-token)).x
			n = from.Rows
			tensor.Convert(p.ex, x.Slice(at-lo, at-lo+n).Mat(), from)
		}
		mine = append(mine, x.Bytes())
	}
	if o, err = g.o.weight.host.open(p, mine); err != nil {
		return o, err
	}
	*operands = (*operands)[:0]
	for rank := range r.comm.Size() {
		place, number := r.copyOf(rank)
		list, rows, ok := o.lists[place], rowGradients{}, false
		if number == 0 {
			rows, ok = g.of(list, room)
		} else {
			list = list[len(own)+number-1:]
			rows.softmax = tensor.FromBytes(list[0], tensor.UINT8, len(list[0]))
			rows.x, ok = g.hiddenOf(list[len(softmax)], room)
			ok = ok && len(list[0]) == len(g.kept.softmax.Bytes())
		}
		if *operands = append(*operands, rows); !ok {
			return o, o.close(p, fmt.Errorf("the operands of rank %d do not fit", rank))
		}
	}
	return o, nil
}

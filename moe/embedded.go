package moe

// The gradient of the embedding, which ranks of a host compute together.

import "spmoe/tensor"

// embedded is the gradient of the output of one look-up of embeddings: row r is that of ids[r].
type embedded struct {
	grad tensor.Tensor // [tokens, dim]
	ids  []int32
}

// embedBackward adds to the gradient of the embedding: this rank's rows, from the tokens of all
// ranks. uses are those of this rank. It is collective if the gradient is shared.
func (h *host) embedBackward(p phase, embedding *weight, uses []embedded) error {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	if h == nil {
		tensor.EmbedBackward(p.ex, embedding.addGrad(p).Mat(), p.batch.Seq, matrices(uses))
		p.pushGrad(embedding)
		return nil
	}
	var mine [][]byte
	for _, u := range uses {
		ids := p.ex.New(tensor.INT32, len(u.ids)) // the caller's may be memory that peers cannot read
		if !p.ex.Dry() {
			copy(ids.I32(), u.ids)
		}
		mine = append(mine, u.grad.Bytes(), ids.Bytes())
	}
	peers, err := p.cp.over(h).open(p.ex, mine)
	if err != nil {
		return err
	}
	batches := make([][]tensor.Embedded, len(peers.lists))
	piece, vocab := embedding.piece(p), embedding.W.Dim(0)
	own := piece[1] - piece[0]
	for r, list := range peers.lists {
		for i, u := range uses {
			if own > 0 {
				peers.bytes += len(list[2*i])*own/vocab + len(list[2*i+1]) // the rows of its tokens, and all ids
			}
			batches[r] = append(batches[r], u.of(list[2*i], list[2*i+1]))
		}
	}
	if embedding.ownRows() > 0 {
		to := embedding.addGrad(p)
		if own > 0 {
			to = to.Slice(piece[0]-embedding.rows[0], piece[1]-embedding.rows[0])
			tensor.EmbedBackwardRows(p.ex, to.Mat(), piece[0], p.batch.Seq, p.cp.parts(), batches)
		}
	}
	p.pushGrad(embedding)
	return peers.close(p.ex, nil)
}

func matrices(uses []embedded) (all []tensor.Embedded) {
	for _, u := range uses {
		all = append(all, tensor.Embedded{Grad: u.grad.Mat(), IDs: u.ids})
	}
	return all
}

// of returns a peer's part of the same look-up.
func (u embedded) of(grad, ids []byte) (e tensor.Embedded) {
	if len(ids) > 0 {
		e.IDs = tensor.FromBytes(ids, tensor.INT32, len(ids)/4).I32()
	}
	e.Grad = tensor.MatrixFromBytes(grad, u.grad.DType(), len(e.IDs), u.grad.Dim(1))
	return e
}

package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
	"spmoe/tensor/profile"
)

// The lightning indexer of DeepSeek sparse attention (DeepSeek-V3.2), which chooses the keys that
// each query attends to. Its scores, in FP32, are sums over its heads in ascending order:
//
//	score(t, s) = Σ_h w_h(t)·relu(scale·q_h(t)·k(s))

// indexRows is the number of queries whose scores are in memory at a time, for all of their keys.
const indexRows = 64

// Indexer holds the operands of scores.
type Indexer struct {
	// Heads, KeyDim and Scale are those of the indexer. All heads have one key. Batch, Seq,
	// Queries, Room and First are as in attention.
	AttentionShape
	Q Matrix // [batch·queries, heads·keyDim]
	K Matrix // [batch·seq, keyDim], of the type of Q
	W Matrix // [batch·queries, heads] FP32
}

func (x *Indexer) check() {
	x.KVHeads, x.ValueDim = 1, x.KeyDim
	rows, cols := x.keyShape(x.KeyDim)
	queries := x.Batch * x.queries()
	if x.Q.Rows != queries || x.Q.Cols != x.Heads*x.KeyDim || x.W.Rows != queries || x.W.Cols != x.Heads ||
		x.K.Rows != rows || x.K.Cols != cols || x.K.dtype != x.Q.dtype || x.W.dtype != FP32 {
		panic(fmt.Sprintf("tensor: indexer of %d heads of %d over q [%d, %d] %v, k [%d, %d] %v and w [%d, %d] %v",
			x.Heads, x.KeyDim, x.Q.Rows, x.Q.Cols, x.Q.dtype, x.K.Rows, x.K.Cols, x.K.dtype, x.W.Rows, x.W.Cols, x.W.dtype))
	}
	x.checkFirst()
}

// indexBlocks returns the number of blocks of query rows in a sequence.
func (s AttentionShape) indexBlocks() int { return ceilDiv(s.queries(), indexRows) }

// ChooseKeys sets the bits of the topK keys with the largest scores of each row of chosen, as
// AttentionShape.Chosen, or of all keys if there are fewer. Of equal scores, the keys at the lowest
// positions are chosen.
func ChooseKeys(ex *Exec, chosen []uint64, topK int, x Indexer) {
	defer ex.ProfilingRows(profile.Attention, x.Q.Rows, x.Q.Cols).End()
	x.check()
	if want := x.Batch * x.queries() * x.KeyWords(); len(chosen) != want || topK < 1 {
		panic(fmt.Sprintf("tensor: choosing %d keys in %d words, want %d", topK, len(chosen), want))
	}
	Parallel(ex, x.Batch*x.indexBlocks(), x.work(), keyChoice{x, chosen, topK}, chooseBlocks)
}

// keyChoice holds the arguments of ChooseKeys.
type keyChoice struct {
	Indexer
	chosen []uint64
	topK   int
}

// chooseBlocks chooses the keys of blocks [lo, hi) of query rows, counted over all sequences.
func chooseBlocks(ex *Exec, c keyChoice, lo, hi int) {
	t, words := newIndexTile(ex, &c.Indexer), c.KeyWords()
	for n := lo; n < hi; n++ {
		b, first := n/c.indexBlocks(), n%c.indexBlocks()*indexRows
		p := c.problem(b)
		from, to := p.before+first, p.before+min(first+indexRows, c.queries())
		begin, scores := t.scores(ex, &p, from, to)
		for i := range to - from {
			row := c.chosen[(b*c.queries()+first+i)*words:][:words]
			clear(row)
			seen := p.seen(from+i, begin, to)
			chooseLargest(row, begin+seen.from, scores.f32Row(i)[seen.from:seen.to], c.topK)
		}
	}
}

// chooseLargest sets the bits of the topK largest values, which belong to keys from on.
func chooseLargest(row []uint64, from int, values []float32, topK int) {
	least, ties := uint32(0), len(values)
	if len(values) > topK {
		least, ties = kthLargest(values, topK)
	}
	for j, v := range values {
		switch u := ordered(v); {
		case u < least || u == least && ties == 0:
			continue
		case u == least:
			ties--
		}
		row[(from+j)/64] |= 1 << ((from + j) % 64)
	}
}

// kthLargest returns the k-th largest value as an ordered integer, and how many values equal to it
// are among the k largest. It finds the integer byte by byte.
func kthLargest(values []float32, k int) (least uint32, ties int) {
	mask := uint32(0)
	for shift := 24; shift >= 0; shift -= 8 {
		var counts [256]int
		for _, v := range values {
			if u := ordered(v); u&mask == least {
				counts[u>>shift&255]++
			}
		}
		digit := 255
		for ; counts[digit] < k; digit-- {
			k -= counts[digit]
		}
		least |= uint32(digit) << shift
		mask |= 255 << shift
	}
	return least, k
}

// ordered maps numbers to integers in the same order. Sums of scores begin with 0, so none is -0.
func ordered(v float32) uint32 {
	u := math.Float32bits(v)
	if u>>31 == 1 {
		return ^u
	}
	return u | 1<<31
}

// problem returns the operands of a sequence, without those of attention.
func (x *Indexer) problem(b int) headProblem {
	return headProblem{
		AttentionShape: x.AttentionShape, k: x.keyHead(x.K, b, 0, x.KeyDim), sequence: b, before: x.Seq - x.queries(),
		q: x.Q.RowSlice(b*x.queries(), (b+1)*x.queries()), o: x.W.RowSlice(b*x.queries(), (b+1)*x.queries()),
	}
}

// indexTile is the scratch memory of one thread.
type indexTile struct {
	sums, product Tensor           // [indexRows, seq] FP32
	keys          *retainedOperand // transposed
}

func newIndexTile(ex *Exec, x *Indexer) indexTile {
	return indexTile{
		sums: newTile(ex, FP32, indexRows, x.Seq), product: newTile(ex, FP32, indexRows, x.Seq),
		keys: newRetained(ex, 0, x.Q.dtype, x.KeyDim, x.Seq),
	}
}

// scores returns the scores of the queries at positions [lo, hi) for the keys [from, hi).
func (t *indexTile) scores(ex *Exec, p *headProblem, lo, hi int) (from int, scores Matrix) {
	ex.Enter(profile.Attention) // shows progress to a watchdog
	from = p.firstKey(p.sequence, lo)
	q := p.q.RowSlice(lo-p.before, hi-p.before)
	w := p.o.RowSlice(lo-p.before, hi-p.before)
	return from, t.sumHeads(ex, p.AttentionShape, q, w, p.k.RowSlice(from, hi).T())
}

// sumHeads returns the scores of queries q, whose heads have weights w, for transposed keys.
func (t *indexTile) sumHeads(ex *Exec, s AttentionShape, q, w, keys Matrix) Matrix {
	t.keys.set(keys)
	scores := tile(t.sums, q.Rows, keys.Cols)
	for h := range s.Heads {
		product := t.headProduct(ex, s, h, q, keys)
		for i := range q.Rows {
			row := scores.f32Row(i)
			if h == 0 {
				clear(row)
			}
			addRelu(row, w.f32Row(i)[h], s.Scale, product.f32Row(i))
		}
	}
	return scores
}

// headProduct returns the products of the queries of a head with the transposed keys that t has.
func (t *indexTile) headProduct(ex *Exec, s AttentionShape, h int, q, keys Matrix) Matrix {
	product := tile(t.product, q.Rows, keys.Cols)
	t.keys.times(ex, product, q.ColSlice(h*s.KeyDim, (h+1)*s.KeyDim), keys, false)
	return product
}

// addRelu adds w·relu(scale·x) to sums. Conversions of products keep compilers for arm64 from
// fusing them with additions, which would change bits.
func addRelu(sums []float32, w, scale float32, x []float32) {
	x = x[:len(sums)]
	for j, v := range x {
		if v <= 0 {
			continue // not a NaN
		}
		sums[j] += float32(w * float32(scale*v))
	}
}

// IndexLoss is the loss of an indexer, and computes it with its gradient. Of the query row t, it is
// the divergence KL(p ‖ softmax(score)) over the keys that attention sees. p is the mean over the
// heads of attention of their probabilities, a constant.
type IndexLoss struct {
	Indexer
	Attention     AttentionShape // Chosen: the keys that it sees
	Queries, Keys Matrix         // of attention
	LSE           []float32      // of attention
	Rows          int            // the first rows of each sequence, which have a loss
	Weight        float32        // of a row, in the gradient
	DQ, DK, DW    Matrix         // the gradients of Q, K and W, of their types
	Losses        []float64      // of each sequence: the sum over its rows, without Weight
}

// Compute computes losses and gradients. Threads take whole sequences. All sums over rows run in
// ascending order, those over keys and heads too, in FP32.
func (l IndexLoss) Compute(ex *Exec) {
	defer ex.ProfilingRows(profile.Attention, l.Q.Rows, l.Q.Cols).End()
	l.Indexer.check()
	work := 3*l.work() + l.Attention.work()/2
	Parallel(ex, l.Batch, work, l, indexLossSequences)
}

// indexLossTile is the scratch memory of one thread of IndexLoss.
type indexLossTile struct {
	indexTile
	target, row Tensor           // [indexRows, seq], [seq] FP32
	gradient    Tensor           // [indexRows, seq] in the type of the operands
	dk          Tensor           // [seq, keyDim] FP32
	mainKeys    *retainedOperand // of a head of attention, transposed
}

func newIndexLossTile(ex *Exec, l *IndexLoss) indexLossTile {
	return indexLossTile{
		indexTile: newIndexTile(ex, &l.Indexer), target: newTile(ex, FP32, indexRows, l.Seq), row: ex.New(FP32, l.Seq),
		gradient: newTile(ex, l.Q.dtype, indexRows, l.Seq), dk: ex.New(FP32, l.Seq, l.KeyDim),
		mainKeys: newRetained(ex, 1, l.Keys.dtype, l.Attention.KeyDim, l.Seq),
	}
}

// IndexScratch returns the bytes that a thread takes from its arena when it computes the loss of an
// indexer, next to attention with operands of a type.
func IndexScratch(index, attention AttentionShape, dtype DType) int {
	ex, operand := NewDryExec(), Matrix{dtype: dtype}
	newIndexLossTile(ex, &IndexLoss{Indexer: Indexer{AttentionShape: index, Q: operand}, Attention: attention, Keys: operand})
	return ex.Peak()
}

func indexLossSequences(ex *Exec, l IndexLoss, begin, end int) {
	t := newIndexLossTile(ex, &l)
	for b := begin; b < end; b++ {
		p := l.problem(b)
		l.Losses[b] = 0
		t.dk.Zero()
		for lo := 0; lo < l.Seq; lo += indexRows {
			t.block(ex, &l, &p, lo, min(lo+indexRows, l.Seq))
		}
		Convert(ex, l.DK.RowSlice(b*l.Seq, (b+1)*l.Seq), t.dk.Mat())
	}
}

// block adds the losses of query rows [lo, hi) and computes their gradients.
func (t *indexLossTile) block(ex *Exec, l *IndexLoss, p *headProblem, lo, hi int) {
	from, scores := t.scores(ex, p, lo, hi)
	target := t.targets(ex, l, p.sequence, lo, hi, from)
	for i := range hi - lo {
		l.Losses[p.sequence] += t.lossOfRow(l, p.sequence, lo+i, from, scores.f32Row(i), target.f32Row(i))
	}
	at := p.sequence*l.Seq + lo
	dq, dw := l.DQ.RowSlice(at, at+hi-lo), l.DW.RowSlice(at, at+hi-lo)
	q := p.q.RowSlice(lo, hi)
	k := p.k.RowSlice(from, hi)
	for h := range l.Heads {
		product := t.headProduct(ex, p.AttentionShape, h, q, k.T())
		for i := range hi - lo {
			dw.f32Row(i)[h] = reluBackward(product.f32Row(i), scores.f32Row(i), p.o.f32Row(lo + i)[h], l.Scale)
		}
		gradient := tile(t.gradient, hi-lo, hi-from)
		Convert(nil, gradient, product)
		cols := [2]int{h * l.KeyDim, (h + 1) * l.KeyDim}
		matMul(ex, dq.ColSlice(cols[0], cols[1]), gradient, k, false)
		matMul(ex, t.dk.Slice(from, hi).Mat(), gradient.T(), q.ColSlice(cols[0], cols[1]), true)
	}
}

// targets returns the mean over the heads of attention of their probabilities. Those of keys that a
// row does not see have no meaning.
func (t *indexLossTile) targets(ex *Exec, l *IndexLoss, b, lo, hi, from int) Matrix {
	s, target := l.Attention, tile(t.target, hi-lo, hi-from)
	share := 1 / float32(s.Heads)
	for h := range s.Heads {
		k := s.keyHead(l.Keys, b, h/(s.Heads/s.kvHeads()), s.KeyDim).RowSlice(from, hi).T()
		t.mainKeys.set(k)
		product := tile(t.product, hi-lo, hi-from)
		t.mainKeys.times(ex, product, head(l.Queries, b, h, s.Seq, s.KeyDim).RowSlice(lo, hi), k, false)
		lse := l.LSE[(b*s.Heads+h)*s.Seq:]
		for i := range hi - lo {
			row, p := target.f32Row(i), t.row.F32()[:hi-from]
			if h == 0 {
				clear(row)
			}
			vec.ExpSum(p, s.Scale, product.f32Row(i), lse[lo+i])
			vec.AddScaled(row, share, p)
		}
	}
	return target
}

// lossOfRow returns the loss of the query at position i, and replaces its scores by their
// gradients. A row that sees one key has none.
func (t *indexLossTile) lossOfRow(l *IndexLoss, b, i, from int, scores, target []float32) (loss float64) {
	p := headProblem{AttentionShape: l.Attention, sequence: b}
	seen := p.seen(i, from, i+1)
	seen = p.choose(seen, i, from, scores)
	if i >= l.Rows || seen.to-seen.from < 2 {
		clear(scores)
		return 0
	}
	only(scores, seen)
	scores, target = scores[seen.from:seen.to], target[seen.from:seen.to]
	exponentials := t.row.F32()[:len(scores)]
	top := vec.Max(scores)
	sum := vec.ExpSum(exponentials, 1, scores, top)
	lse := float64(top) + math.Log(float64(sum))
	for j, score := range scores {
		switch p := target[j]; {
		case math.IsInf(float64(score), -1): // not chosen
			scores[j] = 0
			continue
		case p > 0:
			loss += float64(float64(p) * (math.Log(float64(p)) - float64(score) + lse))
		}
		scores[j] = l.Weight * (exponentials[j]/sum - target[j])
	}
	return loss
}

// reluBackward replaces products of a head by their gradients, given those of the scores. It
// returns the gradient of the head's weight.
func reluBackward(products, dscores []float32, w, scale float32) (dw float32) {
	dscores = dscores[:len(products)]
	for j, v := range products {
		if v <= 0 {
			products[j] = 0
			continue
		}
		d := scale * dscores[j]
		dw += float32(d * v)
		products[j] = d * w
	}
	return dw
}

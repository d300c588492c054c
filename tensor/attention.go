package tensor

import (
	"cmp"
	"fmt"

	"spmoe/tensor/internal/vec"
)

// Causal attention in tiles, as in FlashAttention (arXiv:2205.14135, arXiv:2307.08691). A tile is
// the scores of one block of query rows against one block of keys. Only one tile per thread is in
// memory at a time, so scratch memory does not grow with the square of the sequence. Tiles above
// the diagonal, and those between different documents, are skipped.
//
// Boundaries of blocks depend on the shape only. attention_forward.go and attention_backward.go
// state the order of sums, which is the same for any number of threads.

// queryBlock is the number of query rows in a block of a short sequence. A block of a long one has
// longQueryBlock rows, because each block reads all keys before it.
const (
	queryBlock     = 64
	longQueryBlock = 128
	longSequence   = 2048
)

// AttentionShape describes a batch of causal attention problems.
type AttentionShape struct {
	Batch, Seq, Heads int
	KeyDim, ValueDim  int     // per head
	Scale             float32 // multiplies the scores before the softmax

	// KVHeads is the number of heads of k and v, each for Heads/KVHeads consecutive heads of q
	// (grouped-query attention); 0: Heads.
	KVHeads int

	// Queries is the number of rows of q, o and lse in a sequence: those of its last positions. 0
	// means all. A backward pass has all.
	Queries int

	// Room is the number of rows of each head of k and v, if heads lie one after another:
	// [batch·kvHeads·Room, dim]. The first Seq of them are read. 0: heads lie side by side.
	Room int

	// First, [batch·seq], is the first position in its sequence that each row attends to. With
	// several documents packed into a sequence, it is the start of the row's document. It does not
	// decrease within a sequence. It lies between 0 and the row's own position. Nil means 0 for all
	// rows.
	First []int32

	// Extra is the number of keys and values behind those of a sequence's positions, such as
	// entries that stand for several positions. A query may attend to all of them.
	Extra int

	// Chosen, [batch·queries, KeyWords()], has a bit for each key of a sequence, from the lowest
	// bit of the first word on. A row attends to the keys whose bits are set, among those that
	// First and Extra allow. Nil: all of those.
	Chosen []uint64

	// Sinks, [heads], adds exp(sink) to the sum of exponentials of each row, without a value. The
	// backward pass then sets SinkGradients, [batch·heads], to the sum over each sequence. Nil:
	// none.
	Sinks, SinkGradients []float32
}

// queryRows returns the number of rows in a query block.
func (s AttentionShape) queryRows() int {
	if s.Seq >= longSequence {
		return min(longQueryBlock, s.queries())
	}
	return min(queryBlock, s.queries())
}

// queries returns the number of query rows of a sequence, and kvHeads the heads of k and v.
func (s AttentionShape) queries() int { return cmp.Or(s.Queries, s.Seq) }

func (s AttentionShape) kvHeads() int { return cmp.Or(s.KVHeads, s.Heads) }

// queryBlocks returns the number of query blocks of a sequence.
func (s AttentionShape) queryBlocks() int { return ceilDiv(s.queries(), s.queryRows()) }

// head returns the rows of sequence b, of seq each, and the columns of head h, of dim each.
func head(m Matrix, b, h, seq, dim int) Matrix {
	return m.RowSlice(b*seq, (b+1)*seq).ColSlice(h*dim, (h+1)*dim)
}

// keyHead is head for keys or values.
func (s AttentionShape) keyHead(m Matrix, b, h, dim int) Matrix {
	if s.Room == 0 {
		return head(m, b, h, s.keys(), dim)
	}
	at := (b*s.kvHeads() + h) * s.Room
	return m.RowSlice(at, at+s.keys())
}

// keyShape returns the rows and columns of keys or values.
func (s AttentionShape) keyShape(dim int) (rows, cols int) {
	if s.Room == 0 {
		return s.Batch * s.keys(), s.kvHeads() * dim
	}
	return s.Batch * s.kvHeads() * s.Room, dim
}

// first returns the first position that row i of sequence b attends to.
func (s AttentionShape) first(b, i int) int {
	if s.First == nil {
		return 0
	}
	return int(s.First[b*s.Seq+i])
}

// checkFirst panics if First breaks the rules in its comment.
func (s AttentionShape) checkFirst() {
	if s.First == nil {
		return
	}
	if len(s.First) != s.Batch*s.Seq {
		panic(fmt.Sprintf("tensor: attention over %d sequences of %d rows and First with %d positions, want one per row", s.Batch, s.Seq, len(s.First)))
	}
	for b := range s.Batch {
		before := 0
		for i := range s.Seq {
			first := s.first(b, i)
			if first < before || first > i {
				panic(fmt.Sprintf("tensor: row %d of sequence %d attends from position %d, the row before it from %d: First must not decrease or exceed the row", i, b, first, before))
			}
			before = first
		}
	}
}

func (s AttentionShape) check(q, k, v, o Matrix, lse []float32) {
	s.checkFirst()
	rows := s.Batch * s.queries()
	keys, keyCols := s.keyShape(s.KeyDim)
	values, valueCols := s.keyShape(s.ValueDim)
	if q.Rows != rows || k.Rows != keys || v.Rows != values || o.Rows != rows ||
		q.Cols != s.Heads*s.KeyDim || k.Cols != keyCols || v.Cols != valueCols || o.Cols != s.Heads*s.ValueDim ||
		len(lse) != rows*s.Heads || s.Heads%s.kvHeads() != 0 || s.Queries > s.Seq || s.Room != 0 && s.Room < s.keys() {
		s.First, s.Chosen = nil, nil
		panic(fmt.Sprintf("tensor: attention %+v over q [%d, %d], k [%d, %d], v [%d, %d], o [%d, %d], lse [%d]",
			s, q.Rows, q.Cols, k.Rows, k.Cols, v.Rows, v.Cols, o.Rows, o.Cols, len(lse)))
	}
	if k.dtype != q.dtype || v.dtype != q.dtype || o.dtype != q.dtype {
		panic(fmt.Sprintf("tensor: attention over %v, %v and %v into %v, want one type", q.dtype, k.dtype, v.dtype, o.dtype))
	}
}

// attentionCall holds the arguments that the threads of an attention kernel share.
type attentionCall struct {
	shape                      AttentionShape
	q, k, v, o, dq, dk, dv, do Matrix
	lse, delta                 []float32
	top                        []float32 // of each row, [batch·heads·seq]; nil: not wanted

	// For the key blocks of one head, if they are the parts of a backward pass.
	head  int
	dqSum Tensor // as in backwardTile
	done  keyBlockProgress
}

// work estimates the operations of a forward pass.
func (s AttentionShape) work() int {
	return s.Batch * s.Heads * s.queries() * s.keys() * (s.KeyDim + s.ValueDim)
}

// headProblem holds the operands of one head of one sequence.
type headProblem struct {
	AttentionShape
	q, k, v, o, do, dq, dk, dv Matrix
	lse, delta, top            []float32
	sequence, head             int
	before                     int // positions without a query
}

// problem returns head n, counted over all sequences.
func (c *attentionCall) problem(n int) headProblem {
	s := c.shape
	b, h, rows := n/s.Heads, n%s.Heads, s.queries()
	kv := h / (s.Heads / s.kvHeads())
	query := func(m Matrix, dim int) Matrix { return head(m, b, h, rows, dim) }
	gradient := func(m Matrix, dim int) Matrix { return head(m, b, h, s.keys(), dim) }
	p := headProblem{
		AttentionShape: s, q: query(c.q, s.KeyDim), k: s.keyHead(c.k, b, kv, s.KeyDim), v: s.keyHead(c.v, b, kv, s.ValueDim), o: query(c.o, s.ValueDim),
		lse: c.lse[n*rows:][:rows], sequence: b, head: h, before: s.Seq - rows,
	}
	if c.top != nil {
		p.top = c.top[n*rows:][:rows]
	}
	if c.delta != nil {
		p.dq = query(c.dq, s.KeyDim)
		p.do = query(c.do, s.ValueDim)
		p.delta = c.delta[n*rows:][:rows]
		p.dk, p.dv = gradient(c.dk, s.KeyDim), gradient(c.dv, s.ValueDim)
	}
	return p
}

// keyRange is the range [from, to) of keys that a row attends to, relative to its tile's first key.
type keyRange struct{ from, to int }

// seen returns the keys among [from, to) that row i may attend to. The range may be empty.
func (p *headProblem) seen(i, from, to int) keyRange {
	if from >= p.Seq {
		return keyRange{0, to - from}
	}
	first := min(max(p.first(p.sequence, i), from), to)
	return keyRange{first - from, max(min(i+1, to), first) - from}
}

// firstKey returns the first key for the block of query rows that starts at lo. It is a multiple of
// queryBlock, so the operands have the same alignment with First as without.
func (s AttentionShape) firstKey(b, lo int) int { return s.first(b, lo) / queryBlock * queryBlock }

// tilePadding separates the rows of a tile in memory. Rows whose bytes are a power of two apart
// would compete for the same few lines of a cache.
const tilePadding = 32

// newTile returns scratch memory for tiles of up to rows rows and keys columns.
func newTile(ex *Exec, dtype DType, rows, keys int) Tensor {
	return ex.New(dtype, rows, keys+tilePadding)
}

// tile views a part of that memory as a matrix.
func tile(t Tensor, rows, cols int) Matrix { return t.Slice(0, rows).Mat().ColSlice(0, cols) }

// only returns the seen part of a row and clears the rest.
func only[T uint16 | float32](row []T, seen keyRange) []T {
	clear(row[:seen.from])
	clear(row[seen.to:])
	return row[seen.from:seen.to]
}

// clearRow sets row i of m to zero.
func clearRow(m Matrix, i int) {
	if m.dtype == BF16 {
		clear(m.bf16Row(i))
	} else {
		clear(m.f32Row(i))
	}
}

// scaleRow sets row i of dst to a·x.
func scaleRow(dst Matrix, i int, a float32, x []float32) {
	if dst.dtype == BF16 {
		vec.ScaleBF16(dst.bf16Row(i), a, x)
	} else {
		vec.Scale(dst.f32Row(i), a, x)
	}
}

package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
)

// Compressed keys of DeepSeek-V4: an entry stands for a window of positions. Each of its channels
// is a mean of the window's values, weighted by a softmax over the window's gates:
//
//	e = Σ p·u,  p = softmax(z + bias)      over positions, channel by channel
//
// With an overlap, rows of u, z and bias have two halves. An entry takes the second one of its
// window and the first one of the window before it, with one softmax over both.

// Compression says which rows become entries.
type Compression struct {
	Seq, Rate int     // rows of a sequence, and of a window
	Overlap   bool    // with the window before it, if it belongs to the same document
	Starts    []int32 // [batch·entries]: the first position of each entry's window in its sequence; negative: it is empty. Of a single sequence, it may have some entries only
	First     []int32 // as in AttentionShape: where documents begin
	Bias      Tensor  // [rate, columns of u] FP32
}

// Windows returns the starts of the windows of rate positions in [batch·seq] rows, whose documents
// begin at first: one behind the other from the beginning of each document. The window that begins
// at position p is entry p/rate of seq/rate in its sequence. The incomplete window at the end of a
// document has none. The result is in the arena to.
func Windows(ex *Exec, to *Arena, batch, seq, rate int, first []int32) []int32 {
	entries := seq / rate
	starts := to.New(INT32, batch*entries).I32()
	if ex.dry {
		return starts
	}
	for i := range starts {
		starts[i] = -1
	}
	for r := range batch * seq {
		position, begin := r%seq, 0
		if first != nil {
			begin = int(first[r])
		}
		if (position-begin+1)%rate == 0 {
			start := position + 1 - rate
			starts[r/seq*entries+start/rate] = int32(start)
		}
	}
	return starts
}

// window returns the rows [from, to) of u that entry n is made of. The rows before own are of the
// window before its own.
func (c Compression) window(n int) (from, own, to int) {
	entries := c.Seq / c.Rate
	begin := n / entries * c.Seq
	own = begin + int(c.Starts[n])
	if c.First != nil {
		begin += int(c.First[own])
	}
	if from = own - c.Rate; !c.Overlap || from < begin {
		from = own
	}
	return from, own, own + c.Rate
}

// compressing holds the arguments of Compress and of its gradient.
type compressing struct {
	Compression
	e, u, z, de, du, dz Matrix
}

func (c *compressing) check() {
	halves := 1
	if c.Overlap {
		halves = 2
	}
	if c.e.Rows != len(c.Starts) || c.u.Cols != halves*c.e.Cols || c.z.Rows != c.u.Rows || c.z.Cols != c.u.Cols || c.Bias.Len() != c.Rate*c.u.Cols || c.u.Rows%c.Seq != 0 {
		panic(fmt.Sprintf("tensor: %d entries [%d, %d] of [%d, %d] and [%d, %d] with %d biases in windows of %d of %d", len(c.Starts),
			c.e.Rows, c.e.Cols, c.u.Rows, c.u.Cols, c.z.Rows, c.z.Cols, c.Bias.Len(), c.Rate, c.Seq))
	}
}

// Compress sets e, [batch·entries, width], from u and z, [batch·seq, width or 2·width]. Empty
// entries are zeros.
func (c Compression) Compress(ex *Exec, e, u, z Matrix) {
	job := compressing{Compression: c, e: e, u: u, z: z}
	job.check()
	defer ex.describeRows(u).End()
	forRows(ex, e.Rows, 2*u.Rows*u.Cols, job, compressRows)
}

func compressRows(ex *Exec, c compressing, lo, hi int) {
	t := newEntryTile(ex, &c)
	for n := lo; n < hi; n++ {
		clear(t.mean)
		if c.Starts[n] >= 0 {
			t.set(&c, n)
		}
		setRow(c.e, n, t.mean)
	}
}

// entryTile is the scratch memory of one thread.
type entryTile struct {
	u, p           []float32 // [rows, width]: values of an entry's window, and their exponentials
	products       []float32 // u·p
	top, sum, mean []float32 // [width]: the largest gate, the sum of p, and the entry
}

func newEntryTile(ex *Exec, c *compressing) entryTile {
	row := func(n int) []float32 { return ex.New(FP32, n*c.e.Cols).F32() }
	rows := c.u.Cols / c.e.Cols * c.Rate
	return entryTile{row(rows), row(rows), row(rows), row(1), row(1), row(1)}
}

// part returns the columns of row r that belong to the entry of the window that begins at row own.
func (c *compressing) part(m Matrix, r, own int) Matrix {
	width := c.e.Cols
	if c.Overlap && r >= own {
		return m.ColSlice(width, 2*width)
	}
	return m.ColSlice(0, width)
}

// set computes entry n.
func (t *entryTile) set(c *compressing, n int) {
	from, own, to := c.window(n)
	width, bias := c.e.Cols, c.Bias.Mat()
	for i := range t.top {
		t.top[i] = float32(math.Inf(-1))
	}
	for r := from; r < to; r++ {
		p := t.row(t.p, r-from)
		getRow(t.row(t.u, r-from), c.part(c.u, r, own), r)
		getRow(p, c.part(c.z, r, own), r)
		vec.Add(p, p, c.part(bias, r, own).f32Row((r-from)%c.Rate))
		for i, gate := range p {
			if gate > t.top[i] {
				t.top[i] = gate
			}
		}
	}
	for r := from; r < to; r++ {
		vec.AddScaled(t.row(t.p, r-from), -1, t.top)
	}
	n = (to - from) * width
	vec.ExpSum(t.p[:n], 1, t.p[:n], 0)
	vec.MulScaled(t.products[:n], 1, t.p[:n], t.u[:n])
	vec.SumBlocks(t.sum, t.p, to-from, width)
	vec.SumBlocks(t.mean, t.products, to-from, width)
	vec.Divide(t.mean, t.mean, t.sum)
}

// row returns row i of a part of the tile.
func (t *entryTile) row(part []float32, i int) []float32 {
	return part[i*len(t.top):][:len(t.top)]
}

// getRow sets x to row r of m.
func getRow(x []float32, m Matrix, r int) {
	if m.dtype == BF16 {
		vec.Widen(x, m.bf16Row(r))
	} else {
		copy(x, m.f32Row(r))
	}
}

// Backward sets du and dz from de, the gradient of the entries. With p from Compress: du = p·de, dz
// = p·de·(u - e).
func (c Compression) Backward(ex *Exec, du, dz Tensor, de, u, z Matrix) {
	job := compressing{Compression: c, e: de, de: de, u: u, z: z, du: du.Mat(), dz: dz.Mat()}
	job.check()
	defer ex.describeRows(u).End()
	Zero(ex, du)
	Zero(ex, dz)
	forRows(ex, de.Rows, 4*u.Rows*u.Cols, job, compressBackwardRows)
}

// compressBackwardRows computes entries [lo, hi). A half of a row belongs to one entry at most.
func compressBackwardRows(ex *Exec, c compressing, lo, hi int) {
	t := newEntryTile(ex, &c)
	for n := lo; n < hi; n++ {
		if c.Starts[n] < 0 {
			continue
		}
		t.set(&c, n)
		de := ex.load(0, c.de, n)
		from, own, to := c.window(n)
		for r := from; r < to; r++ {
			u, d := t.row(t.u, r-from), t.row(t.p, r-from)
			vec.Divide(d, d, t.sum)
			vec.MulScaled(d, 1, d, de)
			setRow(c.part(c.du, r, own), r, d)
			vec.AddScaled(u, -1, t.mean)
			vec.MulScaled(d, 1, d, u)
			setRow(c.part(c.dz, r, own), r, d)
		}
	}
}

// EntryChoice chooses the keys of attention over a window and entries: see AttentionShape.Chosen.
type EntryChoice struct {
	AttentionShape         // First: of windows; Extra: entries
	Documents      []int32 // where documents begin, as First; nil: 0
	Rate           int     // positions of an entry
	TopK           int     // entries of a row, those with the largest scores; 0: all that are complete
	Index          Indexer // of these scores: K has the keys of the entries, [batch·Extra, keyDim]
}

// Choose sets the bits of each row of chosen: the positions of its window, and entries of its
// document that are complete.
func (c EntryChoice) Choose(ex *Exec, chosen []uint64) {
	queries := c.Batch * c.queries()
	if len(chosen) != queries*c.KeyWords() {
		panic(fmt.Sprintf("tensor: choosing keys of %d rows in %d words, want %d per row", queries, len(chosen), c.KeyWords()))
	}
	work := queries * c.Extra
	if c.TopK > 0 {
		work *= c.Index.Heads * c.Index.KeyDim
	}
	Parallel(ex, c.Batch*c.indexBlocks(), work, entryChoosing{c, chosen}, chooseEntries)
}

// entryChoosing holds the arguments of Choose.
type entryChoosing struct {
	EntryChoice
	chosen []uint64
}

// entries returns the complete entries [from, to) of the document of the row at position i.
func (c EntryChoice) entries(b, i int) (from, to int) {
	first := 0
	if c.Documents != nil {
		first = int(c.Documents[b*c.Seq+i])
	}
	from = first / c.Rate
	return from, from + (i-first+1)/c.Rate
}

// chooseEntries chooses the keys of blocks [lo, hi) of query rows, counted over all sequences.
func chooseEntries(ex *Exec, c entryChoosing, lo, hi int) {
	words, before := c.KeyWords(), c.Seq-c.queries()
	var t indexTile
	if c.TopK > 0 {
		t = newIndexTile(ex, &c.Index)
	}
	for n := lo; n < hi; n++ {
		b, first := n/c.indexBlocks(), n%c.indexBlocks()*indexRows
		end := min(first+indexRows, c.queries())
		var scores Matrix
		if c.TopK > 0 && c.Extra > 0 {
			scores = c.scores(ex, &t, b, first, end)
		}
		for r := first; r < end; r++ {
			row := c.chosen[(b*c.queries()+r)*words:][:words]
			clear(row)
			position := before + r
			for key := c.first(b, position); key <= position; key++ {
				row[key/64] |= 1 << (key % 64)
			}
			from, to := c.entries(b, position)
			if c.TopK > 0 && to > from {
				chooseLargest(row, c.Seq+from, scores.f32Row(r - first)[from:to], c.TopK)
				continue
			}
			for key := c.Seq + from; key < c.Seq+to; key++ {
				row[key/64] |= 1 << (key % 64)
			}
		}
	}
}

// scores returns the scores of all entries for query rows [lo, hi) of a sequence.
func (c EntryChoice) scores(ex *Exec, t *indexTile, b, lo, hi int) Matrix {
	x, first := &c.Index, b*c.queries()
	q := x.Q.RowSlice(first+lo, first+hi)
	w := x.W.RowSlice(first+lo, first+hi)
	return t.sumHeads(ex, x.AttentionShape, q, w, x.K.RowSlice(b*c.Extra, (b+1)*c.Extra).T())
}

package tensor

import (
	"fmt"
	"math/bits"

	"spmoe/tensor/internal/vec"
)

// Embed copies row ids[r] of table to row r of y. table: [vocab, n], y: [len(ids), n].
func Embed(ex *Exec, y Matrix, table Matrix, ids []int32) {
	checkIDs(y, ids)
	sameShape(table.RowSlice(0, 0), y.RowSlice(0, 0))
	defer ex.describeRows(y).End()
	forRows(ex, y.Rows, y.Rows*y.Cols, lookup{table: table, rows: y, ids: ids}, embedRows)
}

// lookup holds the arguments of Embed.
type lookup struct {
	table, rows Matrix
	ids         []int32
}

func embedRows(ex *Exec, l lookup, lo, hi int) {
	for r := lo; r < hi; r++ {
		id := int(l.ids[r])
		convertRows(ex, [5]Matrix{l.rows.RowSlice(r, r+1), l.table.RowSlice(id, id+1)})
	}
}

// Embedded is the gradient of the output of one Embed call.
type Embedded struct {
	Grad Matrix // [len(IDs), n] FP32 or BF16
	IDs  []int32
}

// EmbedBackward adds row r of each Grad to row IDs[r] of dtable: [vocab, n] FP32. uses lists the
// Embed calls of one batch. There is at least one, and all have the same number of rows. The sum
// follows spans of span rows as in Wgrad. Within a span, the rows of the first use come first, then
// those of the next.
func EmbedBackward(ex *Exec, dtable Matrix, span int, uses []Embedded) {
	for _, u := range uses {
		if ex.dry {
			break
		}
		for _, id := range u.IDs {
			dtable.RowSlice(int(id), int(id)+1)
		}
	}
	ex.embedded = append(ex.embedded[:0], uses)
	EmbedBackwardRows(ex, dtable, 0, span, 1, ex.embedded)
	clear(ex.embedded)
}

// EmbedBackwardRows is EmbedBackward for the rows of a table's gradient from row first on, which
// dtable holds, and for several batches. It leaves out other rows. A balanced binary tree adds up
// the sums of the batches, as in Wgrad. A batch may be empty. Each parts batches that follow each
// other, of equally many rows, count as one batch with the rows of all.
func EmbedBackwardRows(ex *Exec, dtable Matrix, first, span, parts int, batches [][]Embedded) {
	dtable.checkFP32Rows()
	if span < 1 {
		panic(fmt.Sprintf("tensor: embedding by spans of %d rows, want 1 or more", span))
	}
	s := embedGrad{dtable: dtable, firstID: first, batches: batches, parts: parts, span: span, uses: len(batches[0])}
	for i, uses := range batches {
		s.check(uses)
		if whole := batches[i/parts*parts]; uses[0].Grad.Rows != whole[0].Grad.Rows {
			panic(fmt.Sprintf("tensor: parts of %d and %d rows of one batch of embeddings", whole[0].Grad.Rows, uses[0].Grad.Rows))
		}
		s.batchSpans = max(s.batchSpans, ceilDiv(parts*uses[0].Grad.Rows, span))
	}
	if s.batchSpans > 1 {
		s.batchSpans = 1 << bits.Len(uint(s.batchSpans-1))
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	s.sort(ex)
	tiles := (dtable.Cols + tileCols - 1) / tileCols
	forRows(ex, tiles, len(s.order)*dtable.Cols, s, embedGradColumns)
}

// embedGrad holds the state of one EmbedBackwardRows.
type embedGrad struct {
	dtable     Matrix
	firstID    int // of dtable
	batches    [][]Embedded
	parts      int // batches that count as one
	uses       int // per batch
	span       int
	batchSpans int     // spans per batch, rounded up to a power of two: the tree is that of batches
	order      []int32 // gradient rows, sorted by id and then in the order of the sum
	ends       []int32 // end of each id's gradient rows in order
}

// check panics unless the uses of a batch fit together.
func (s *embedGrad) check(uses []Embedded) {
	if len(uses) != s.uses {
		panic(fmt.Sprintf("tensor: %d and %d embeddings in batches of one call", s.uses, len(uses)))
	}
	rows := uses[0].Grad.Rows
	for _, u := range uses {
		checkIDs(u.Grad, u.IDs)
		sameShape(s.dtable.RowSlice(0, 0), u.Grad.RowSlice(0, 0))
		if u.Grad.Rows != rows {
			panic(fmt.Sprintf("tensor: embeddings of %d and %d rows in one batch", rows, u.Grad.Rows))
		}
	}
}

// A gradient row is a row of a use. It is counted batch by batch, within a batch span by span, and
// within a span use by use. Each batch has room for batchSpans spans.

func (s *embedGrad) rowsPerSpan() int { return s.span * s.uses }

// locate returns the use that a gradient row belongs to, and its row within the use.
func (s *embedGrad) locate(gradRow int32) (use *Embedded, row int) {
	perSpan := s.rowsPerSpan()
	batch, rest := int(gradRow)/(s.batchSpans*perSpan), int(gradRow)%(s.batchSpans*perSpan)
	parts := s.batches[batch*s.parts:][:s.parts]
	each := parts[0][0].Grad.Rows
	first := rest / perSpan * s.span
	length := min(s.span, s.parts*each-first)
	rest %= perSpan
	row = first + rest%length
	return &parts[row/each][rest/length], row % each
}

// spanOf returns the span of a gradient row, counted over all batches.
func (s *embedGrad) spanOf(gradRow int32) int { return int(gradRow) / s.rowsPerSpan() }

// index returns the row of dtable for an id, or false if it is not there.
func (s *embedGrad) index(id int32) (row int, ok bool) {
	row = int(id) - s.firstID
	return row, row >= 0 && row < s.dtable.Rows
}

// sort groups the gradient rows by id, with a counting sort.
func (s *embedGrad) sort(ex *Exec) {
	s.ends = ex.New(INT32, s.dtable.Rows+1).I32()
	if ex.dry { // the ids are data: at most all rows are in dtable
		ex.New(INT32, len(s.batches)*s.uses*s.batches[0][0].Grad.Rows)
		return
	}
	clear(s.ends)
	for _, uses := range s.batches {
		for _, u := range uses {
			for _, id := range u.IDs {
				if row, ok := s.index(id); ok {
					s.ends[row+1]++
				}
			}
		}
	}
	for row := range s.dtable.Rows {
		s.ends[row+1] += s.ends[row]
	}
	s.order = ex.New(INT32, int(s.ends[s.dtable.Rows])).I32()
	for b := 0; b < len(s.batches); b += s.parts {
		begin := int32(b / s.parts * s.batchSpans * s.rowsPerSpan())
		for gradRow := begin; gradRow < begin+int32(s.parts*s.batches[b][0].Grad.Rows*s.uses); gradRow++ {
			use, at := s.locate(gradRow)
			if row, ok := s.index(use.IDs[at]); ok {
				s.order[s.ends[row]] = gradRow
				s.ends[row]++
			}
		}
	}
}

// embedGradColumns computes column tiles [lo, hi) for all ids.
func embedGradColumns(ex *Exec, s embedGrad, lo, hi int) {
	if ex.dry {
		hi = ceilDiv(s.dtable.Cols, tileCols)
	}
	dtable := columns(s.dtable, lo, hi)
	spans := s.batchSpans * len(s.batches) / s.parts
	t := embedGradTree{embedGrad: s, lo: lo, hi: hi, levelSums: ex.New(FP32, bits.Len(uint(spans))+1, dtable.Cols).Mat()}
	if ex.dry {
		return
	}
	begin := int32(0)
	for id := range dtable.Rows {
		if end := s.ends[id]; end > begin {
			row := dtable.f32Row(id)
			vec.Add(row, row, t.sum(s.order[begin:end], 0, spans, 0))
			begin = end
		}
	}
}

// embedGradTree sums column tiles [lo, hi) of the gradient rows of one id.
type embedGradTree struct {
	embedGrad
	lo, hi    int
	levelSums Matrix // one sum per level
}

// sum adds up the given gradient rows, at least one, in spans [first, first+spans). It uses
// levelSums from that level on for the result. It skips a half of the tree without gradient rows,
// which would add zeros.
func (t *embedGradTree) sum(gradRows []int32, first, spans, level int) []float32 {
	if t.spanOf(gradRows[0]) == t.spanOf(gradRows[len(gradRows)-1]) {
		return t.leaf(gradRows, level)
	}
	half := 1 << (bits.Len(uint(spans-1)) - 1)
	mid := 0
	for mid < len(gradRows) && t.spanOf(gradRows[mid]) < first+half {
		mid++
	}
	switch mid {
	case 0:
		return t.sum(gradRows, first+half, spans-half, level)
	case len(gradRows):
		return t.sum(gradRows, first, half, level)
	}
	left, right := t.sum(gradRows[:mid], first, half, level), t.sum(gradRows[mid:], first+half, spans-half, level+1)
	vec.Add(left, left, right)
	return left
}

// leaf is sum for gradient rows in one span.
func (t *embedGradTree) leaf(gradRows []int32, level int) []float32 {
	sum := t.levelSums.f32Row(level)
	clear(sum)
	for _, gradRow := range gradRows {
		use, row := t.locate(gradRow)
		if dy := columns(use.Grad, t.lo, t.hi); dy.dtype == BF16 {
			vec.AddScaledBF16(sum, 1, dy.bf16Row(row))
		} else {
			vec.AddScaled(sum, 1, dy.f32Row(row))
		}
	}
	return sum
}

func checkIDs(rows Matrix, ids []int32) {
	rows.checkRows()
	if rows.Rows != len(ids) {
		panic(fmt.Sprintf("tensor: %d ids for %d rows", len(ids), rows.Rows))
	}
}

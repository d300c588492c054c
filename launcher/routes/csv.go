package routes

import (
	"bufio"
	"io"
	"strconv"
)

// ExpertRank returns the rank, within its group, that holds an expert.
func (h Header) ExpertRank(expert int32) int { return int(expert) * h.EP / h.Experts }

// elementBytes is the size of an element of a token's row in BF16, as it travels.
const elementBytes = 2

// Trace writes one CSV line per token and expert, for simulators of communication: step, layer,
// rank that has the token, token (of the global batch), expert, rank that holds it, weight, bytes
// of the row. Groups of EP ranks hold all experts, and rows stay within their group.
type Trace struct {
	header Header
	out    *bufio.Writer
	line   []byte
}

// NewTrace writes the first line, the names of the columns.
func NewTrace(h Header, out io.Writer) *Trace {
	t := &Trace{header: h, out: bufio.NewWriterSize(out, 1<<16)}
	_, _ = t.out.WriteString("step,layer,source_rank,token,expert,expert_rank,weight,bytes\n")
	return t
}

// Add writes a step.
func (t *Trace) Add(s Step) (err error) {
	h := t.header
	for l, layer := range h.Layers {
		experts, weights := s.Layer(h, l)
		for i, e := range experts {
			token := i / h.TopK
			rank := token / h.Seq * h.Ranks / h.Batch // ranks have equal parts of the batch, in order
			owner := rank/h.EP*h.EP + h.ExpertRank(e)
			b := t.line[:0]
			for _, n := range [...]int{s.Step, layer, rank, token, int(e), owner} {
				b = append(strconv.AppendInt(b, int64(n), 10), ',')
			}
			b = append(strconv.AppendFloat(b, float64(weights[i]), 'g', -1, 32), ',')
			t.line = append(strconv.AppendInt(b, int64(h.Dim*elementBytes), 10), '\n')
			_, err = t.out.Write(t.line) // bufio keeps the first error
		}
	}
	return err
}

// Flush writes what is left.
func (t *Trace) Flush() error { return t.out.Flush() }

// Tensorcores writes all products of one training step as a GPU's tensor cores add them: operands,
// FP32 results, and results of rules with a mistake. Verify.py multiplies the same operands on that
// GPU and compares every bit.
//
//	go build ./bench/peers/tensorcores
//	./tensorcores --precision fp8-block --sum h100 | python3 bench/peers/tensorcores/verify.py
//
// A dense weight gradient is written leaf by leaf: one product per sequence. The program checks
// that the step's own result is that of the products written.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/tensorcore"
)

func main() {
	var o options
	flag.StringVar(&o.flavor, "flavor", "16B-slice", "`NAME` of a built-in model")
	flag.IntVar(&o.layers, "layers", 2, "`N` layers of it")
	flag.StringVar(&o.precision, "precision", "bf16", "`NAME` of a recipe")
	flag.StringVar(&o.sum, "sum", "h100", "`NAME` of a GPU's sum: h100 or h100-nopromotion")
	flag.IntVar(&o.seq, "seq", 256, "`N` tokens per sequence")
	flag.IntVar(&o.sequences, "batch", 2, "`N` sequences")
	flag.IntVar(&o.threads, "threads", runtime.NumCPU(), "`N` threads")
	flag.Parse()
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	if err := errors.Join(o.run(out), out.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "tensorcores:", err)
		os.Exit(1)
	}
}

type options struct {
	flavor, precision, sum          string
	layers, seq, sequences, threads int
}

// run computes a step and writes its products to out.
func (o options) run(out io.Writer) error {
	cfg, err := moe.FlavorByName(o.flavor)
	if err != nil {
		return err
	}
	cfg.Layers = min(cfg.Layers, o.layers)
	precision, err := moe.PrecisionByName(o.precision)
	if err != nil {
		return err
	}
	sum, err := mx.ParseSum(o.sum)
	if err != nil {
		return err
	}
	if !sum.OfGPU() {
		return fmt.Errorf("--sum %s is not that of a GPU: give h100 or h100-nopromotion", o.sum)
	}
	m, err := moe.New(cfg, precision.WithSum(sum), o.seq, collective.NewWorld(1).Comm(0), nil)
	if err != nil {
		return err
	}
	ex := tensor.NewParallelExec(o.threads)
	defer ex.Close()
	if err := fill(ex, m); err != nil {
		return err
	}
	batch, err := o.batch()
	if err != nil {
		return err
	}
	w := writer{out: out, names: names(cfg), ex: tensor.NewParallelExec(o.threads)}
	defer w.ex.Close()
	ex.OnCores = func(c tensor.Matrix, a, b tensor.CoreOperand, s tensor.CoreSum) {
		if w.err == nil && c.Rows > 0 && a.Cols > 0 {
			w.err = w.product(c, a, b, s)
		}
	}
	loss, err := m.Train(ex, batch)
	fmt.Fprintf(os.Stderr, "%d products of a step; loss %.6f\n", w.products, loss.Sum/float64(max(loss.Tokens, 1)))
	return errors.Join(err, w.err)
}

// fill sets the initial weights of seed 1.
func fill(ex *tensor.Exec, m *moe.Model) error {
	for _, g := range m.Groups {
		for _, p := range g.Params {
			mark := ex.Mark()
			t := ex.New(tensor.FP32, 1, p.Len())
			p.Fill(t.F32(), 0, 1)
			tensor.Convert(ex, p.Work.Reshape(1, p.Len()).Mat(), t.Mat())
			ex.Release(mark)
		}
		if err := g.Refresh(ex); err != nil {
			return err
		}
	}
	return nil
}

// batch returns the first sequences of the text inside the program, as bytes.
func (o options) batch() (b moe.Batch, err error) {
	corpus, err := datasets.Builtin(datasets.Options{})
	if err != nil {
		return b, err
	}
	loader, err := datasets.NewLoader(datasets.Tokenize(corpus.Train, datasets.Bytes{}), datasets.LoaderConfig{Seq: o.seq, GlobalBatch: o.sequences, Ranks: 1, Seed: 1})
	if err != nil {
		return b, err
	}
	rows := make([]int32, o.sequences*(o.seq+1))
	if err := loader.Next(rows); err != nil {
		return b, err
	}
	b = moe.Batch{Seq: o.seq, GlobalSequences: o.sequences}
	for i := range o.sequences {
		row := rows[i*(o.seq+1):]
		b.Inputs, b.Targets = append(b.Inputs, row[:o.seq]...), append(b.Targets, row[1:o.seq+1]...)
	}
	return b, nil
}

// names returns the weights of each shape. The output's are divided into blocks of rows.
func names(c moe.Config) map[[2]int]string {
	shared := c.SharedExperts * c.ExpertInter
	return map[[2]int]string{
		{c.Heads * (c.NopeDim + c.RopeDim), c.Dim}:     "q_proj",
		{c.KVRank + c.RopeDim, c.Dim}:                  "kv_a_proj_with_mqa",
		{c.Heads * (c.NopeDim + c.ValueDim), c.KVRank}: "kv_b_proj",
		{c.Dim, c.Heads * c.ValueDim}:                  "o_proj",
		{2 * c.DenseInter, c.Dim}:                      "mlp.gate_up_proj",
		{c.Dim, c.DenseInter}:                          "mlp.down_proj",
		{2 * shared, c.Dim}:                            "shared_experts.gate_up_proj",
		{c.Dim, shared}:                                "shared_experts.down_proj",
		{2 * c.ExpertInter, c.Dim}:                     "experts.gate_up_proj",
		{c.Dim, c.ExpertInter}:                         "experts.down_proj",
	}
}

// writer writes products.
type writer struct {
	out      io.Writer
	names    map[[2]int]string
	ex       *tensor.Exec // of the results in FP32
	products int
	err      error
}

// header precedes the numbers of a product. verify.py reads it.
type header struct {
	Kind    string   `json:"kind"` // forward, dgrad or wgrad
	Weight  string   `json:"weight"`
	M       int      `json:"m"`
	N       int      `json:"n"`
	K       int      `json:"k"`
	Spans   []int    `json:"spans"`   // elements of k of each leaf
	Element string   `json:"element"` // bf16 or e4m3
	Promote int      `json:"promote"` // products per chain, 0: all
	Rows    [2]int   `json:"rows"`    // of a block that has a scale, of a and b; 0: no scales
	Alpha   float32  `json:"alpha"`   // multiplies the sum, 1: nothing does
	Mutants []string `json:"mutants"` // rules with a mistake
	Corner  int      `json:"corner"`  // rows and columns of their results
	More    bool     `json:"more"`    // the second leaf's chain begun with the first one's sum follows
}

// product writes one product: operands in BF16, scales, results of all leaves, corners of mutants.
func (w *writer) product(c tensor.Matrix, a, b tensor.CoreOperand, s tensor.CoreSum) error {
	w.products++
	defer w.ex.Release(w.ex.Mark())
	span := s.Span
	if span == 0 || span > a.Cols {
		span = a.Cols
	}
	h := header{M: c.Rows, N: c.Cols, K: a.Cols, Element: "e4m3", Promote: s.Plan.Promote, Rows: [2]int{a.Scales.Rows, b.Scales.Rows}, Alpha: 1}
	h.Kind, h.Weight = w.kind(c, a)
	if a.Least == -126 {
		h.Element = "bf16"
	}
	if s.Alpha != 0 {
		h.Alpha = s.Alpha
	}
	for k := 0; k < a.Cols; k += span {
		h.Spans = append(h.Spans, min(span, a.Cols-k))
	}
	results := w.ex.New(tensor.FP32, len(h.Spans), c.Rows, c.Cols)
	for i, n := range h.Spans {
		tensor.CoreMatMul(w.ex, results.Index(i).Mat(), cut(a, i*span, n), cut(b, i*span, n), tensor.CoreSum{Plan: s.Plan})
	}
	if err := w.check(c, results, s); err != nil {
		return fmt.Errorf("%s of %s [%d, %d, %d]: %w", h.Kind, h.Weight, h.M, h.N, h.K, err)
	}
	wrong := mutants(s.Plan)
	for _, m := range wrong {
		h.Mutants = append(h.Mutants, m.name)
	}
	h.Corner = min(8, c.Rows, c.Cols)
	h.More = h.Element == "bf16" && len(h.Spans) > 1 && c.Rows*c.Cols < 1<<24

	if err := json.NewEncoder(w.out).Encode(h); err != nil {
		return err
	}
	for _, operand := range []tensor.CoreOperand{a, b} {
		if err := w.write(packed(w.ex, tensor.BF16, operand.Matrix)); err != nil {
			return err
		}
	}
	for _, operand := range []tensor.CoreOperand{a, b} {
		if err := w.write(scales(w.ex, operand)); err != nil {
			return err
		}
	}
	if err := w.write(results); err != nil {
		return err
	}
	for _, m := range wrong {
		if err := w.write(m.corner(w.ex, a, b, h.Spans[0], h.Corner)); err != nil {
			return err
		}
	}
	if h.More {
		more := w.ex.New(tensor.FP32, c.Rows, c.Cols)
		copy(more.F32(), results.Index(0).F32())
		tensor.CoreMatMul(w.ex, more.Mat(), cut(a, span, h.Spans[1]), cut(b, span, h.Spans[1]), tensor.CoreSum{Plan: s.Plan, Continue: true})
		return w.write(more)
	}
	return nil
}

func (w *writer) write(t tensor.Tensor) error {
	if !t.Valid() {
		return nil
	}
	_, err := w.out.Write(t.Bytes())
	return err
}

// check compares the step's own result with that of the leaves, unless it was added to another one.
func (w *writer) check(c tensor.Matrix, results tensor.Tensor, s tensor.CoreSum) error {
	if s.Accumulate || s.Continue || results.Dim(0) > 2 {
		return nil
	}
	sum := w.ex.New(tensor.FP32, c.Rows, c.Cols)
	values := sum.F32()
	for i := range results.Dim(0) {
		for j, x := range results.Index(i).F32() {
			if s.Alpha != 0 {
				x *= s.Alpha
			}
			if i == 0 {
				values[j] = x
			} else {
				values[j] += x
			}
		}
	}
	if want := packed(w.ex, c.DType(), sum.Mat()); !bytes.Equal(want.Bytes(), packed(w.ex, c.DType(), c).Bytes()) {
		return errors.New("the step's result is not that of its leaves")
	}
	return nil
}

// cut returns n elements of k, from k on.
func cut(o tensor.CoreOperand, k, n int) tensor.CoreOperand {
	o.Matrix = o.Matrix.ColSlice(k, k+n)
	o.Scales = o.Scales.From(k)
	return o
}

// packed returns a copy of m in a type, with adjacent elements of rows.
func packed(ex *tensor.Exec, dtype tensor.DType, m tensor.Matrix) tensor.Tensor {
	t := ex.New(dtype, m.Rows, m.Cols)
	if _, _, step := m.Memory(); step == 1 || m.Cols == 1 {
		tensor.Convert(ex, t.Mat(), m)
		return t
	}
	across := packed(ex, dtype, m.T())
	if dtype == tensor.BF16 {
		transpose(t.BF16(), across.BF16(), m.Cols)
	} else {
		transpose(t.F32(), across.F32(), m.Cols)
	}
	return t
}

// transpose sets dst to the transpose of src, [cols, rows], in squares that fit a cache.
func transpose[T any](dst, src []T, cols int) {
	const side = 64
	rows := len(src) / cols
	for r := 0; r < rows; r += side {
		for c := 0; c < cols; c += side {
			for i := r; i < min(r+side, rows); i++ {
				for j := c; j < min(c+side, cols); j++ {
					dst[i*cols+j] = src[j*rows+i]
				}
			}
		}
	}
}

// kind returns a product's kind and its weight. The functions that called for it tell the gradients
// apart, and shapes the weights.
func (w *writer) kind(c tensor.Matrix, a tensor.CoreOperand) (kind, weight string) {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		name := strings.ToLower(f.Function[strings.LastIndexByte(f.Function, '.')+1:])
		for suffix, k := range map[string]string{"wgrad": "wgrad", "dgrad": "dgrad", "backwardinput": "dgrad", "gradients": "dgrad"} {
			if kind == "" && strings.HasSuffix(name, suffix) {
				kind = k
			}
		}
	}
	shape := [2]int{c.Cols, a.Cols} // of a forward product's weight
	switch {
	case kind == "wgrad":
		shape = [2]int{c.Rows, c.Cols}
	case kind == "dgrad":
		shape = [2]int{a.Cols, c.Cols}
	default:
		kind = "forward"
	}
	return kind, cmp.Or(w.names[shape], "lm_head")
}

// scales returns the FP32 scales of an operand, [blocks of rows, runs].
func scales(ex *tensor.Exec, o tensor.CoreOperand) tensor.Tensor {
	if o.Scales.Rows == 0 {
		return tensor.Tensor{}
	}
	t := ex.New(tensor.FP32, (o.Rows+o.Scales.Rows-1)/o.Scales.Rows, (o.Cols+o.Scales.Run-1)/o.Scales.Run)
	for i := range t.Dim(0) {
		for run := range t.Dim(1) {
			t.F32()[i*t.Dim(1)+run] = o.Scales.FP32(i*o.Scales.Rows, run)
		}
	}
	return t
}

// mutant is a plan with a mistake.
type mutant struct {
	name string
	plan tensorcore.Plan
}

func mutants(p tensorcore.Plan) []mutant {
	twice, bit := p, p
	twice.Terms *= 2
	bit.Fraction--
	return []mutant{{"blocks of twice the terms", twice}, {"one fractional bit less", bit}}
}

// corner returns the first rows and columns of the first leaf by a mutant, in plain Go.
func (m mutant) corner(ex *tensor.Exec, a, b tensor.CoreOperand, k, n int) tensor.Tensor {
	t := ex.New(tensor.FP32, n, n)
	left, right := plain(ex, a, k, n), plain(ex, b, k, n)
	for i := range n {
		for j := range n {
			x := &t.F32()[i*n+j]
			if a.Scales.Rows == 0 {
				*x = m.plan.Dot(left[i].elements, right[j].elements)
			} else {
				*x = m.plan.DotScaled(left[i].elements, right[j].elements, tensorcore.Scales{A: left[i].scales, B: right[j].scales, Squares: max(a.Scales.Rows, b.Scales.Rows) > 1})
			}
		}
	}
	return t
}

// row is a row of an operand.
type row struct {
	elements []tensorcore.Element
	scales   []float32
}

// plain returns the first n rows of an operand and k elements of each.
func plain(ex *tensor.Exec, o tensor.CoreOperand, k, n int) []row {
	t := packed(ex, tensor.FP32, o.RowSlice(0, n).ColSlice(0, k))
	rows := make([]row, n)
	for i := range rows {
		for _, x := range t.F32()[i*k : (i+1)*k] {
			rows[i].elements = append(rows[i].elements, tensorcore.ElementOf(x, o.Least))
		}
		for run := 0; o.Scales.Rows > 0 && run*o.Scales.Run < k; run++ {
			rows[i].scales = append(rows[i].scales, o.Scales.FP32(i, run))
		}
	}
	return rows
}

package referee

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// Gradients of parameters: the sum over all calls and over all modules that share the parameter is
// compared with what the run left in .grad.

// gradientSum collects the local gradient of one parameter.
type gradientSum struct {
	dims   []int
	parts  []Part // exact, by micro-batch
	floors [][]float64
	trial  *trial // the last one that added to it
}

// accumulate adds a trial's gradients to the sums of its parameters.
func (j *judge) accumulate(t *trial) {
	for name, g := range t.exact.params {
		if !slices.Contains(j.owners[name], t.module) {
			continue
		}
		s := j.sums[name]
		if s == nil {
			s = &gradientSum{dims: g.Dims, floors: make([][]float64, len(t.floors))}
			j.sums[name] = s
		}
		s.trial = t
		s.add(fmt.Sprintf("micro-batch %d", t.repeat.MicroBatch), g.Data)
		dtype, _ := j.folder.DType(step.Gradients, name)
		low := dtype == "BF16" && !strings.Contains(j.folder.Info.Accumulation, "32")
		for i, f := range t.floors {
			if s.floors[i] == nil {
				s.floors[i] = make([]float64, len(g.Data))
			}
			for k, x := range f.params[name].Data {
				s.floors[i][k] += x
				if low { // .grad is added to in its own type
					s.floors[i][k] = roundBF16(s.floors[i][k])
				}
			}
		}
	}
}

// add adds to the part of a name.
func (s *gradientSum) add(name string, values []float64) {
	for i := range s.parts {
		if s.parts[i].Name == name {
			for k, x := range values {
				s.parts[i].Values[k] += x
			}
			return
		}
	}
	s.parts = append(s.parts, Part{Name: name, Axis: "micro-batches", Values: slices.Clone(values)})
}

func (s *gradientSum) total() []float64 {
	sum := slices.Clone(s.parts[0].Values)
	for _, p := range s.parts[1:] {
		for i, x := range p.Values {
			sum[i] += x
		}
	}
	return sum
}

// roundBF16 rounds to nearest even.
func roundBF16(x float64) float64 {
	bits := math.Float32bits(float32(x))
	if bits&0x7f800000 == 0x7f800000 {
		return x
	}
	return float64(math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff))
}

// gradients compares the gradients of a module's parameters, unless another module that is still to
// come adds to them.
func (j *judge) gradients(m *reference.Module, line *ModuleLine) error {
	for _, name := range m.Params {
		s, owners := j.sums[name], j.owners[name]
		if s == nil || owners[0] != m || j.finished[name] || j.incomplete() { // owners[0] is the last in order
			continue
		}
		c, err := j.gradient(name, s.total(), s.floors, s.dims)
		if err != nil {
			return err
		}
		j.finished[name] = true
		if c == nil {
			delete(j.sums, name)
			continue
		}
		if c.Wrong() {
			if says, err := j.describeGradient(name, s, c); err != nil {
				return err
			} else if says != "" {
				c.Note = says
			}
		}
		delete(j.sums, name)
		line.Comparisons = append(line.Comparisons, *c)
	}
	return nil
}

// incomplete reports whether micro-batches or ranks are missing, without which no gradient of a
// weight can be judged.
func (j *judge) incomplete() bool { return len(j.folder.Incomplete()) > 0 }

// gradient compares one gradient with its reference; nil if the folder has none, and may lack it.
func (j *judge) gradient(name string, want []float64, floors [][]float64, dims []int) (*Comparison, error) {
	v, err := j.folder.Gradient(name)
	if errors.Is(err, step.ErrAbsent) {
		if normOf(want, nil) == 0 || !j.layerHasGradients(name) {
			return nil, nil
		}
		return &Comparison{What: "gradient", Name: name, Rows: 1, Statistic: "absent", Strain: inf, Scaled: true, Error: 1,
			Note: "the folder has no gradient, but those of the same layer: frozen or detached, no gradient flows back to it"}, nil
	} else if err != nil {
		return nil, err
	}
	if len(v.Data) != len(want) {
		return &Comparison{What: "gradient", Name: name, Statistic: "shape", Strain: inf, Note: fmt.Sprintf("it has shape %v, the parameter %v", v.Dims, dims)}, nil
	}
	rows := 1
	if len(dims) == 2 {
		rows = dims[0]
	}
	least := leastOf(v.DType)
	if strings.Contains(name, "embed_tokens") {
		least *= 1.5 // kernels round partial sums of a token that occurs often
	}
	parts := map[int]bool{} // by their first token
	for _, r := range j.folder.Ranks {
		if len(r.Tokens) > 0 && len(r.Tokens[0]) > 0 {
			parts[r.Tokens[0][0]] = true
		}
	}
	if n := len(parts); n > 1 { // each rank's gradient is rounded, and each partial sum of a ring
		least *= math.Sqrt(1 + float64(n)/2)
	}
	c := tensorPair{v.Data, want, floors, rows, least, nil}.compareWhole("gradient", name)
	return &c, nil
}

// layerHasGradients reports whether the folder has gradients of the same layer.
func (j *judge) layerHasGradients(name string) bool {
	prefix := name
	if parts := strings.SplitN(name, ".", 4); len(parts) == 4 && parts[1] == "layers" {
		prefix = strings.Join(parts[:3], ".") + "."
	} else {
		prefix = ""
	}
	return slices.ContainsFunc(j.folder.Names(step.Gradients), func(other string) bool { return strings.HasPrefix(other, prefix) })
}

// describeGradient says what a wrong gradient is, as far as its parts and the weights tell: parts
// of ranks or micro-batches, weight decay, or the gradient of another parameter.
func (j *judge) describeGradient(name string, s *gradientSum, c *Comparison) (string, error) {
	v, err := j.folder.Gradient(name)
	if err != nil || len(v.Data) != len(s.parts[0].Values) {
		return "", nil
	}
	tolerance := max(3*wholeBound*c.Floor, 3*c.WorstFloor)
	if len(s.parts) > 1 {
		if says := fitParts(v.Data, s.parts, c.within, tolerance); says != "" {
			return says, nil
		}
	}
	for _, parts := range j.rankParts(name, s) {
		if says := fitParts(v.Data, parts, c.within, tolerance); says != "" {
			return says, nil
		}
	}
	if c.Scaled {
		return "", nil
	}
	if w, err := j.folder.Weight(name); err == nil && len(w.Data) == len(v.Data) {
		total := s.total()
		if a, rest, ok := solve(v.Data, [][]float64{total, w.Data}); ok && c.within(rest) && math.Abs(a[0]-1) < max(0.05, tolerance) {
			return fmt.Sprintf("it is the local gradient + %s × the weight: weight decay was added to the gradient", factorText(a[1])), nil
		}
		if len(s.dims) == 2 && s.dims[0] == s.dims[1] {
			turned := transpose(total, s.dims[0])
			if a, rest, ok := solve(v.Data, [][]float64{turned}); ok && c.within(rest) {
				return fmt.Sprintf("it is %s × the local gradient, transposed", factorText(a[0])), nil
			}
		}
	}
	for other, o := range s.trial.exact.params { // experts swapped, gate for up
		if other == name || len(o.Data) != len(v.Data) || normOf(o.Data, nil) == 0 {
			continue
		}
		if a, rest, ok := solve(v.Data, [][]float64{o.Data}); ok && c.within(rest) {
			return fmt.Sprintf("it is %s × the gradient of %s", factorText(a[0]), other), nil
		}
	}
	return "", nil
}

func fitParts(y []float64, parts []Part, within func(float64) bool, tolerance float64) string {
	values := make([][]float64, len(parts))
	for i, p := range parts {
		values[i] = p.Values
	}
	a, rest, ok := solve(y, values)
	if !ok || !within(rest) {
		return ""
	}
	same := true
	for _, x := range a {
		same = same && math.Abs(x-a[0]) < max(0.02, tolerance)*math.Max(1, math.Abs(a[0]))
	}
	if same { // a common factor, which is said elsewhere
		return ""
	}
	return describeParts(parts, a, tolerance)
}

// rankParts returns the gradient of the tokens of each coordinate, by mesh dimension.
func (j *judge) rankParts(name string, s *gradientSum) (all [][]Part) {
	ranks, t := j.folder.Ranks, s.trial
	if len(ranks) < 2 || len(s.parts) > 1 || !t.backward {
		return nil
	}
	axes := map[string]int{}
	for _, r := range ranks {
		for axis, at := range r.Coordinate {
			axes[axis] = max(axes[axis], at+1)
		}
	}
	for axis, size := range axes {
		if size < 2 || size > 16 {
			continue
		}
		var parts []Part
		for at := range size {
			mine := make([]bool, t.tokens)
			for _, r := range ranks {
				for _, token := range r.Tokens[t.repeat.MicroBatch] {
					if r.Coordinate[axis] == at && token < len(mine) {
						mine[token] = true
					}
				}
			}
			part := *t
			part.gradOut = slices.Clone(t.gradOut)
			for i, g := range part.gradOut {
				part.gradOut[i] = masked(g, mine)
			}
			o, err := part.run(t.call)
			if err != nil {
				return nil
			}
			parts = append(parts, Part{Name: fmt.Sprintf("%s rank %d", axis, at), Axis: axis, Values: o.params[name].Data})
		}
		all = append(all, parts)
	}
	return all
}

// masked returns a gradient with the rows of other tokens set to zero.
func masked(g reference.Tensor, mine []bool) reference.Tensor {
	if len(g.Dims) == 0 || g.Dims[0] != len(mine) {
		return g
	}
	width, data := len(g.Data)/len(mine), slices.Clone(g.Data)
	for token, keep := range mine {
		if !keep {
			clear(data[token*width : (token+1)*width])
		}
	}
	return reference.Tensor{Dims: g.Dims, Data: data}
}

func transpose(x []float64, n int) []float64 {
	out := make([]float64, len(x))
	for r := range n {
		for c := range n {
			out[c*n+r] = x[r*n+c]
		}
	}
	return out
}

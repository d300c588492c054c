package referee

import (
	"errors"
	"fmt"
	"maps"
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
	parts    []part // exact, by micro-batch
	floors   [][]float64
	trial    *trial // the last one that added to it
	finished bool   // it was judged
}

// accumulate adds a trial's gradients to the sums of its parameters.
func (j *judge) accumulate(t *trial) {
	for _, name := range t.module.Params {
		if !slices.Contains(j.owners[name], t.module) {
			continue
		}
		s := j.sums[name]
		if s == nil {
			s = &gradientSum{floors: make([][]float64, len(t.floors))}
			j.sums[name] = s
		}
		s.trial = t
		micro := fmt.Sprintf("micro-batch %d", t.repeat.MicroBatch)
		if at := slices.IndexFunc(s.parts, func(p part) bool { return p.name == micro }); at >= 0 {
			s.parts[at].values = sum(s.parts[at].values, t.exact[name].Data)
		} else {
			s.parts = append(s.parts, part{micro, "micro-batches", t.exact[name].Data})
		}
		dtype, _ := j.folder.DType(step.Gradients, name, step.Repeat{})
		format := reference.Exact
		if dtype == "BF16" && !strings.Contains(j.folder.Info.Accumulation, "32") {
			format = reference.BF16 // .grad is added to in its own type
		}
		for i, f := range t.floors {
			s.floors[i] = sum(f[name].Data, s.floors[i])
			for k, x := range s.floors[i] {
				if format == reference.Exact {
					break
				}
				s.floors[i][k] = format.Round(x)
			}
		}
	}
}

func (s *gradientSum) total() []float64 {
	total := s.parts[0].values
	for _, p := range s.parts[1:] {
		total = sum(total, p.values)
	}
	return total
}

// gradients compares the gradients of a module's parameters, unless another module that is still to
// come adds to them.
func (j *judge) gradients(m *reference.Module, line *ModuleLine) error {
	for _, name := range m.Params {
		s, owners := j.sums[name], j.owners[name]
		if s == nil || owners[0] != m || s.finished || j.incomplete() { // owners[0] is the last in order
			continue
		}
		c, err := j.gradient(name, s.total(), s.floors)
		if err != nil {
			return err
		}
		if c != nil {
			if c.Wrong() && c.Note == "" {
				c.Note = j.describeGradient(name, s, c)
			}
			line.Comparisons = append(line.Comparisons, *c)
		}
		j.sums[name] = &gradientSum{finished: true}
	}
	return nil
}

// incomplete reports whether micro-batches or ranks are missing, without which no gradient of a
// weight can be judged.
func (j *judge) incomplete() bool { return len(j.folder.Incomplete()) > 0 }

// gradient compares one gradient with its reference; nil if the folder has none, and may lack it.
func (j *judge) gradient(name string, want []float64, floors [][]float64) (*Comparison, error) {
	v, err := j.folder.Read(step.Gradients, name, step.Repeat{})
	if errors.Is(err, step.ErrAbsent) {
		if normOf(want, nil) == 0 || j.frozen(name) {
			return nil, nil
		}
		return &Comparison{What: "gradient", Name: name, Rows: 1, Statistic: "absent", Strain: inf, Scaled: true, Error: 1,
			Note: "the folder has no gradient, but those of the same layer: frozen or detached, no gradient flows back to it"}, nil
	} else if err != nil {
		return nil, err
	}
	p := tensorPair{got: v.Data, want: want, floors: floors, rows: 1, least: leastOf(v.DType)}
	if len(v.Dims) == 2 {
		p.rows = v.Dims[0]
	}
	if strings.Contains(name, "embed_tokens") {
		p.least *= 1.5 // kernels round partial sums of a token that occurs often
	}
	parts := map[int]bool{} // of the batch, by their first token
	for _, r := range j.folder.Ranks {
		if len(r.Tokens) > 0 && len(r.Tokens[0]) > 0 {
			parts[r.Tokens[0][0]] = true
		}
	}
	if n := len(parts); n > 1 { // each rank's gradient is rounded, and each partial sum of a ring
		p.summed = p.least * math.Sqrt(float64(n)/2)
		p.least = math.Hypot(p.least, p.summed)
	}
	c := p.compareWhole("gradient", name)
	return &c, nil
}

// frozen reports whether a gradient may be absent: step.json says so, or the folder has none of any
// parameter of the same class, or none of the same layer.
func (j *judge) frozen(name string) bool {
	for _, other := range j.folder.Info.Frozen { // which may be the experts of a layer together
		experts, _, fused := strings.Cut(other, "experts.")
		if other == name || fused && strings.HasPrefix(name, experts+"experts.") {
			return true
		}
	}
	layer, class := false, classOf(name+".") == name+"."
	for _, other := range j.folder.Names(step.Gradients, false) {
		class = class || classOf(other+".") == classOf(name+".")
		layer = layer || layerOf(name) < 0 || layerOf(other) == layerOf(name)
	}
	if missing := "gradients of " + classOf(name+"."); layer && !class && !slices.Contains(j.report.Missing, missing) {
		j.report.Missing = append(j.report.Missing, missing)
	}
	return !layer || !class
}

// describeGradient says what a wrong gradient is, as far as its parts and the weights tell: parts
// of ranks or micro-batches, weight decay, or the gradient of another parameter.
func (j *judge) describeGradient(name string, s *gradientSum, c *Comparison) string {
	v, err := j.folder.Read(step.Gradients, name, step.Repeat{})
	if err != nil {
		return ""
	}
	tolerance, total := max(3*wholeBound*c.Floor, 3*c.WorstFloor), s.total()
	for _, parts := range append(j.rankParts(name, s), s.parts) {
		if says := describeParts(v.Data, parts, *c, tolerance); len(parts) > 1 && says != "" {
			return says
		}
	}
	if c.Scaled {
		return ""
	}
	is := func(what ...[]float64) (a []float64) {
		if len(what[0]) != len(v.Data) {
			return nil
		}
		if a, rest, ok := solve(v.Data, what); ok && c.within(rest) {
			return a
		}
		return nil
	}
	if w, err := j.folder.Read(step.Weights, name, step.Repeat{}); err == nil {
		if a := is(w.Data, total); a != nil && math.Abs(a[1]-1) < max(0.05, tolerance) {
			return fmt.Sprintf("it is the local gradient + %s × the weight: weight decay was added to the gradient", factorText(a[0]))
		}
	}
	n, zero, others := len(v.Data)/c.Rows, []int{}, slices.Clone(total)
	for r := range c.Rows {
		if normOf(v.Data[r*n:(r+1)*n], nil) == 0 && normOf(total[r*n:(r+1)*n], nil) > 0 {
			zero = append(zero, r)
			clear(others[r*n : (r+1)*n])
		}
	}
	if 0 < len(zero) && len(zero) < c.Rows && is(others) != nil {
		return fmt.Sprintf("%d of %d rows are zero, no gradient arrives there: rows %s", len(zero), c.Rows, joinInts(zero[:min(16, len(zero))]))
	}
	if n == c.Rows {
		turned := make([]float64, len(total))
		for i, x := range total {
			turned[i%n*n+i/n] = x
		}
		if a := is(turned); a != nil {
			return fmt.Sprintf("it is %s × the local gradient, transposed", factorText(a[0]))
		}
	}
	for _, other := range s.trial.module.Params { // experts swapped, gate for up
		if other == name || normOf(s.trial.exact[other].Data, nil) == 0 {
			continue
		}
		if a := is(s.trial.exact[other].Data); a != nil {
			return fmt.Sprintf("it is %s × the gradient of %s", factorText(a[0]), other)
		}
	}
	return ""
}

// rankParts returns the gradient of the tokens of each coordinate, by mesh dimension.
func (j *judge) rankParts(name string, s *gradientSum) (all [][]part) {
	if len(j.folder.Ranks) < 2 || len(s.parts) > 1 {
		return nil
	}
	t := s.trial
	for _, axis := range j.mesh() {
		if axis.size < 2 || axis.size > 16 || axis.name == "ranks" {
			continue
		}
		var parts []part
		for at := range int(axis.size) {
			mine := make([]bool, t.tokens)
			for _, r := range j.folder.Ranks {
				for _, token := range r.Tokens[t.repeat.MicroBatch] {
					mine[token] = mine[token] || r.Coordinate[axis.name] == at
				}
			}
			gradients := map[string]reference.Tensor{}
			for _, p := range t.module.Outputs {
				if v := t.held[p.Gradient().Label()]; v != nil && len(v.Dims) > 0 && v.Dims[0] == t.tokens {
					gradients[p.Gradient().Label()] = masked(v.Tensor, mine)
				}
			}
			call := t.call
			call.Given = with(call.Given, gradients)
			o, err := t.run(call)
			if err != nil {
				return nil
			}
			parts = append(parts, part{fmt.Sprintf("%s rank %d", axis.name, at), axis.name, o[name].Data})
		}
		all = append(all, parts)
	}
	return all
}

// masked returns a gradient with the rows of other tokens set to zero.
func masked(g reference.Tensor, mine []bool) reference.Tensor {
	width, data := len(g.Data)/len(mine), slices.Clone(g.Data)
	for token, keep := range mine {
		if !keep {
			clear(data[token*width : (token+1)*width])
		}
	}
	return reference.Tensor{Dims: g.Dims, Data: data}
}

// sameFactor is how far two factors may be apart to count as one.
const sameFactor = 0.01

func near(x, y float64) bool { return math.Abs(x/y-1) < sameFactor }

// settle finds the factor that most modules' gradients share. It is no fault of any one module:
// clipping or averaging over ranks scales all. Gradients without it are then the wrong ones.
func (j *judge) settle() {
	var votes []float64
	var all, loss []*Comparison
	for _, line := range j.report.Modules {
		var factors []float64
		for i := range line.Comparisons {
			c := &line.Comparisons[i]
			if c.Factor == 0 || c.Wrong() && !c.Scaled {
				continue
			}
			if k := reference.Kind(line.Kind); c.What == "grad_input" && (k == reference.Loss || k == reference.Head) {
				loss = append(loss, c)
			}
			if c.What == "gradient" && c.Floor > 0 {
				all, factors = append(all, c), append(factors, c.Factor)
			}
		}
		if len(factors) > 0 {
			votes = append(votes, median(factors))
		}
	}
	common, agree := median(votes), 0
	for _, v := range votes {
		if math.Abs(v/common-1) < 2*sameFactor {
			agree++
		}
	}
	if len(votes) < 3 || agree*3 < len(votes)*2 || math.Abs(common-1) <= 3*sameFactor {
		common = 1
	}
	for _, c := range all {
		if common == 1 {
			break
		}
		if c.Factor /= common; math.Abs(c.Factor-1) < sameFactor+c.Floor {
			c.forgive()
		} else if !c.Scaled {
			c.Scaled, c.Strain = true, 1/max(c.Floor, 1e-9)
			c.Note = fmt.Sprintf("the gradient is %s × the local one, and those of all other weights are %s ×", factorText(c.Factor*common), factorText(common))
		}
	}
	j.settleLoss(common, loss, len(all))
	for _, line := range j.report.Modules {
		line.setVerdict()
	}
}

// settleLoss judges the factor of the loss's gradient together with that of all weights. A loss
// that is a mean over the targets of each rank goes with gradients that are averaged over ranks,
// and a loss by the number of micro-batches with a sum over these.
func (j *judge) settleLoss(common float64, loss []*Comparison, count int) {
	micro := float64(max(j.folder.Info.MicroBatches, 1))
	averaged := near(common, 1)
	for _, s := range j.mesh() {
		averaged = averaged || near(common, 1/s.size)
	}
	total := common
	if len(loss) > 0 {
		total *= loss[len(loss)-1].Factor
	}
	switch {
	case averaged && len(loss) == 0:
	case averaged && (near(total, 1/micro) || near(total, 1)):
		for _, c := range loss {
			c.forgive()
		}
		if !near(total, 1/micro) {
			j.report.doubt(fmt.Sprintf("the gradients are sums over %g micro-batches, whose losses are not divided by %g: step.json does not state whether they should be", micro, micro))
		}
	case !near(common, 1):
		j.commonFactor(common, count)
	}
}

// commonFactor says what a factor of all gradients means. A step folder states that gradients are
// neither clipped nor scaled; the loss scale of step.json is no fault.
func (j *judge) commonFactor(k float64, count int) {
	says := fmt.Sprintf("all %d gradients of weights are %s × what the recorded gradients of outputs give", count, factorText(k))
	if s := j.folder.Info.LossScale; s != 1 && near(k, 1/s) {
		j.report.Read = append(j.report.Read, says+": the loss scale was taken off")
		return
	}
	says += map[bool]string{true: ": a common factor, as if they were clipped before they were saved", false: ": a common factor, as if a loss scale was not taken off"}[k < 1]
	says += j.explainFactor(k)
	if strings.HasPrefix(j.folder.Form, "step") {
		j.report.Findings = append(j.report.Findings, &Finding{Module: "all weights", Part: "gradient", Says: []string{says}, Factor: k, Look: "clipping, the loss scale and the reduction over ranks, between the backward pass and the optimizer"})
		return
	}
	j.report.doubt(says + "; the folder does not state it")
}

// size is a count of the step that a factor may come from.
type size struct {
	name string
	size float64
}

// mesh lists the dimensions of a parallel run's mesh, and the number of its ranks.
func (j *judge) mesh() (all []size) {
	mesh := map[string]int{}
	for _, r := range j.folder.Ranks {
		for axis, at := range r.Coordinate {
			mesh[axis] = max(mesh[axis], at+1)
		}
	}
	for _, axis := range slices.Sorted(maps.Keys(mesh)) {
		all = append(all, size{axis, float64(mesh[axis])})
	}
	return append(all, size{"ranks", float64(max(len(j.folder.Ranks), j.folder.Info.Ranks, 1))})
}

// explainFactor says what a factor may come from, in brackets; "" if nothing fits.
func (j *judge) explainFactor(k float64) string {
	c, info := j.folder.Model, j.folder.Info
	sizes := append(j.mesh(), size{"micro-batches", float64(max(info.MicroBatches, len(j.repeats)))}, size{"loss scale", info.LossScale},
		size{"routed_scaling_factor", c.RouteScale}, size{"experts per token", float64(c.TopK)}, size{"experts", float64(c.Experts)})
	if b, err := j.folder.Batch(j.repeats[0]); err == nil {
		sizes = append(sizes, size{"sequences", float64(b.Batch)}, size{"tokens", float64(b.Batch * b.Seq)})
	}
	var readings []string
	for _, s := range sizes {
		switch {
		case s.size <= 1:
		case near(k, s.size):
			readings = append(readings, fmt.Sprintf("%g is the number of %s: a sum over it where a mean is meant, or done twice", s.size, s.name))
		case near(k*s.size, 1):
			readings = append(readings, fmt.Sprintf("%g is the number of %s: divided by it once too often", s.size, s.name))
		}
	}
	switch {
	case k == 0:
		readings = []string{"zero: frozen, detached, or never summed up"}
	case near(k, -1):
		readings = []string{"the sign is wrong"}
	case near(k, 2) && len(readings) == 0:
		readings = []string{"added twice"}
	}
	if len(readings) == 0 {
		return ""
	}
	return " (" + strings.Join(readings, "; or ") + ")"
}

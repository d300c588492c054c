package referee

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/moe/reference"
)

// Factors: what most gradients share, and what a factor may come from.

// sameFactor is how far two factors may be apart to count as one.
const sameFactor = 0.01

// settle finds the factor that most modules' gradients share. It is no fault of any one module:
// clipping or averaging over ranks scales all. Gradients without it are then the wrong ones.
func (j *judge) settle() {
	var votes []float64
	var all []*Comparison
	for _, line := range j.report.Modules {
		var factors []float64
		for i := range line.Comparisons {
			if c := &line.Comparisons[i]; c.What == "gradient" && c.Factor != 0 && c.Floor > 0 && (c.Scaled || !c.Wrong()) {
				all, factors = append(all, c), append(factors, c.Factor)
			}
		}
		if len(factors) > 0 {
			votes = append(votes, median(factors))
		}
	}
	common := median(votes)
	agree := 0
	for _, v := range votes {
		if math.Abs(v/common-1) < 2*sameFactor {
			agree++
		}
	}
	if len(votes) < 3 || agree*3 < len(votes)*2 {
		common = 1
	}
	if math.Abs(common-1) > 3*sameFactor {
		j.rescale(all, common)
	}
	j.settleLoss(common, len(all))
	for _, line := range j.report.Modules {
		line.Verdict = Right
		if len(line.wrong()) > 0 {
			line.Verdict = Wrong
		}
	}
}

// rescale judges gradients against the factor that they share.
func (j *judge) rescale(all []*Comparison, common float64) {
	for _, c := range all {
		c.Factor /= common
		if math.Abs(c.Factor-1) < sameFactor+c.Floor {
			c.forgive()
		} else if !c.Scaled {
			c.Scaled, c.Strain = true, 1/max(c.Floor, 1e-9)
			c.Note = fmt.Sprintf("the gradient is %s × the local one, and those of all other weights are %s ×", factorText(c.Factor*common), factorText(common))
		}
	}
}

// settleLoss judges the factor of the loss's gradient together with that of all weights. A loss
// that is a mean over the targets of each rank goes with gradients that are averaged over ranks,
// and a loss by the number of micro-batches with a sum over these.
func (j *judge) settleLoss(common float64, count int) {
	var loss []*Comparison
	factor := 1.0
	for _, line := range j.report.Modules {
		for i := range line.Comparisons {
			c := &line.Comparisons[i]
			if k := reference.Kind(line.Kind); (k == reference.Loss || k == reference.Head) && c.What == "grad_input" && (c.Scaled || !c.Wrong()) {
				loss, factor = append(loss, c), c.Factor
			}
		}
	}
	near := func(x, y float64) bool { return math.Abs(x/y-1) < sameFactor }
	micro := float64(max(j.folder.Info.MicroBatches, 1))
	shares := []float64{1}
	for _, s := range j.mesh() {
		shares = append(shares, s.size)
	}
	averaged := slices.ContainsFunc(shares, func(n float64) bool { return near(common, 1/n) })
	if averaged && len(loss) == 0 {
		return
	}
	if total := factor * common; averaged && (near(total, 1/micro) || near(total, 1)) {
		for _, c := range loss {
			c.forgive()
		}
		if !near(total, 1/micro) {
			j.report.doubt(fmt.Sprintf("the gradients are sums over %g micro-batches, whose losses are not divided by %g: step.json does not state whether they should be", micro, micro))
		}
		return
	}
	if !near(common, 1) {
		j.commonFactor(common, count)
	}
}

// commonFactor says what a factor of all gradients means. A step folder states that gradients are
// neither clipped nor scaled; the loss scale of step.json is no fault.
func (j *judge) commonFactor(k float64, count int) {
	says := fmt.Sprintf("all %d gradients of weights are %s × what the recorded gradients of outputs give", count, factorText(k))
	near := func(x float64) bool { return math.Abs(k/x-1) < sameFactor }
	if s := j.folder.Info.LossScale; s != 1 && near(1/s) {
		j.report.Read = append(j.report.Read, says+": the loss scale was taken off")
		return
	}
	if k < 1 {
		says += ": a common factor, as if they were clipped before they were saved"
	} else {
		says += ": a common factor, as if a loss scale was not taken off"
	}
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
	if len(j.repeats) == 0 {
		return nil
	}
	mesh := map[string]int{}
	for _, r := range j.folder.Ranks {
		for axis, at := range r.Coordinate {
			mesh[axis] = max(mesh[axis], at+1)
		}
	}
	for axis, n := range mesh {
		all = append(all, size{axis, float64(n)})
	}
	slices.SortFunc(all, func(a, b size) int { return strings.Compare(a.name, b.name) })
	return append(all, size{"ranks", float64(max(len(j.folder.Ranks), j.folder.Info.Ranks, 1))})
}

// sizes lists the dimensions of the mesh, then other counts of the step.
func (j *judge) sizes() (all []size) {
	if len(j.repeats) == 0 {
		return nil
	}
	c := j.folder.Model
	all = append(j.mesh(),
		size{"micro-batches", float64(max(j.folder.Info.MicroBatches, len(j.repeats)))}, size{"loss scale", j.folder.Info.LossScale},
		size{"routed_scaling_factor", c.RouteScale}, size{"experts per token", float64(c.TopK)}, size{"experts", float64(c.Experts)})
	if b, err := j.folder.Batch(j.repeats[0]); err == nil {
		all = append(all, size{"sequences", float64(b.Batch)}, size{"tokens of a sequence", float64(b.Seq)}, size{"tokens", float64(b.Batch * b.Seq)})
	}
	return slices.DeleteFunc(all, func(s size) bool { return s.size <= 1 })
}

// explainFactor says what a factor may come from, in brackets; "" if nothing fits.
func (j *judge) explainFactor(k float64) string {
	var readings []string
	for _, s := range j.sizes() {
		switch {
		case math.Abs(k/s.size-1) < sameFactor:
			readings = append(readings, fmt.Sprintf("%g is the number of %s: a sum over it where a mean is meant, or done twice", s.size, s.name))
		case math.Abs(k*s.size-1) < sameFactor:
			readings = append(readings, fmt.Sprintf("%g is the number of %s: divided by it once too often", s.size, s.name))
		}
	}
	switch {
	case k == 0:
		readings = []string{"zero: frozen, detached, or never summed up"}
	case math.Abs(k+1) < sameFactor:
		readings = []string{"the sign is wrong"}
	case math.Abs(k/2-1) < sameFactor && len(readings) == 0:
		readings = []string{"added twice"}
	}
	if len(readings) == 0 {
		return ""
	}
	return " (" + strings.Join(readings, "; or ") + ")"
}

package projection

// What published rows say about a run that resembles them: the logarithm of throughput over
// prediction is a sum of random effects that runs share. Its expectation given the published rows
// corrects a prediction, and its variance gives the interval (best linear unbiased prediction,
// Henderson 1975; as in kriging with names in place of places).

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/mat"
)

// effects are the standard deviations of the effects.
type effects struct {
	About         string  `json:"about"`
	Common        float64 `json:"common"`        // of all rows
	Framework     float64 `json:"framework"`     // of one framework, and so on
	Family        float64 `json:"family"`        // of models
	Model         float64 `json:"model"`         //
	Generation    float64 `json:"generation"`    // of GPUs and their links
	GPU           float64 `json:"gpu"`           //
	Precision     float64 `json:"precision"`     // 16 bits or fewer
	Stack         float64 `json:"stack"`         //
	Layout        float64 `json:"layout"`        // the degrees of parallelism
	Release       float64 `json:"release"`       // nearly the same in neighbouring months
	Configuration float64 `json:"configuration"` // of runs that are the same
	Row           float64 `json:"row"`           // of a row alone
}

// traits are what a row has in common with others.
type traits struct {
	framework, family, model, generation, gpu, stack, layout, configuration string
	quantized                                                               bool
	month                                                                   float64 // of the release; 0: unknown
}

var releasePattern = regexp.MustCompile(`-(\d\d)\.(\d\d)`)

// traitsOf returns the traits of a run. Its ID may name a release, as year and month.
func traitsOf(id string, r Run) traits {
	t := traits{
		framework: frameworkOf(r.Stack), family: familyOf(r.Model), model: r.Model, generation: generationOf(r.GPU), gpu: strings.ToUpper(r.GPU), stack: r.Stack,
		layout: fmt.Sprintf("TP %d, PP %d x %d, EP %d", r.TP, r.PP, r.VP, r.EP), configuration: fmt.Sprintf("%+v", r), quantized: r.quantizesAll(),
	}
	if m := releasePattern.FindStringSubmatch(id); m != nil {
		year, _ := strconv.Atoi(m[1])
		month, _ := strconv.Atoi(m[2])
		t.month = float64(12*year + month)
	}
	return t
}

// frameworkOf returns the framework of a stack. AutoModel and TorchTitan are one: FSDP2 and plain
// PyTorch.
func frameworkOf(stack string) string {
	framework, _, _ := strings.Cut(stack, "_")
	if framework == "automodel" || stack == "primus_titan" {
		return "titan"
	}
	return framework
}

func familyOf(model string) string {
	switch {
	case strings.HasPrefix(model, "671B"), strings.HasPrefix(model, "Kimi"):
		return "DeepSeek-V3"
	case strings.HasPrefix(model, "236B"), model == "16B", strings.HasPrefix(model, "Moonlight"):
		return "DeepSeek-V2"
	}
	family, _, _ := strings.Cut(model, "-")
	return family
}

func generationOf(gpu string) string {
	gpu = strings.ToUpper(gpu)
	return strings.TrimRight(gpu, "0123456789X")
}

// covariance returns that of the residuals of two rows.
func (s effects) covariance(a, b traits) float64 {
	sum := s.Common * s.Common
	for _, e := range []struct {
		same bool
		sd   float64
	}{
		{a.framework == b.framework, s.Framework}, {a.family == b.family, s.Family}, {a.model == b.model, s.Model}, {a.generation == b.generation, s.Generation},
		{a.gpu == b.gpu, s.GPU}, {a.quantized == b.quantized, s.Precision}, {a.stack == b.stack, s.Stack},
		{a.layout == b.layout, s.Layout}, {a.configuration == b.configuration, s.Configuration},
	} {
		if e.same {
			sum += e.sd * e.sd
		}
	}
	if a.month > 0 && b.month > 0 && a.framework == b.framework {
		sum += s.Release * s.Release * math.Exp(-math.Abs(a.month-b.month)/6)
	}
	return sum
}

// variance returns that of a row's own residual.
func (s effects) variance(t traits) float64 {
	v := s.covariance(t, t) + s.Row*s.Row
	if t.month == 0 {
		v += s.Release * s.Release
	}
	return v
}

// record is a published row with its residual.
type record struct {
	id       string
	traits   traits
	residual float64 // logarithm of published over predicted
	fit      bool    // see Row
}

// records returns the published rows whose layouts are known. TorchTitan's ladders are left out,
// except their step on Hopper with DeepEP: other rows describe their overheads.
func records() ([]record, error) {
	var all []record
	for _, r := range Rows() {
		held := r.Group == "H2" || r.Group == "H3" || r.Group == "H4" || r.ID == "titan-h100-deepep"
		if !held || r.Assumed {
			continue
		}
		predicted, err := throughput(r.Run, Central())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.ID, err)
		}
		all = append(all, record{r.ID, traitsOf(r.ID, r.Run), math.Log(r.Published / predicted), r.Fit != ""})
	}
	return all, nil
}

// correction returns the mean and the variance of a row's residual, given the records.
func (s effects) correction(t traits, given []record) (mean, variance float64, err error) {
	n := len(given)
	among, with, residuals := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil), mat.NewVecDense(n, nil)
	for i, a := range given {
		for j := range i {
			among.SetSym(i, j, s.covariance(a.traits, given[j].traits))
		}
		among.SetSym(i, i, s.variance(a.traits))
		with.SetVec(i, s.covariance(a.traits, t))
		residuals.SetVec(i, a.residual)
	}
	var factors mat.Cholesky
	if !factors.Factorize(among) {
		return 0, 0, fmt.Errorf("the covariance of %d residuals is not positive definite: give a larger deviation of single rows", n)
	}
	var weights mat.VecDense
	if err := factors.SolveVecTo(&weights, with); err != nil {
		return 0, 0, err
	}
	return mat.Dot(&weights, residuals), s.variance(t) - mat.Dot(&weights, with), nil
}

// LeftOut is a published row that is predicted from the others.
type LeftOut struct {
	ID     string
	Error  float64 // logarithm of predicted over published
	Inside bool    // within the 80 % interval
	sd     float64
}

// LeaveOut predicts each published row from those of other configurations.
func LeaveOut() ([]LeftOut, error) { return data().parameters.Residuals.leaveOut() }

func (s effects) leaveOut() ([]LeftOut, error) {
	all, err := records()
	if err != nil {
		return nil, err
	}
	var out []LeftOut
	for _, r := range all {
		var others []record
		for _, o := range all {
			if o.traits.configuration != r.traits.configuration {
				others = append(others, o)
			}
		}
		mean, variance, err := s.correction(r.traits, others)
		if err != nil {
			return nil, err
		}
		sd := math.Sqrt(variance)
		out = append(out, LeftOut{r.id, mean - r.residual, math.Abs(mean-r.residual) <= z80*sd, sd})
	}
	return out, nil
}

// LeaveOutError returns the mean absolute error of [LeaveOut], as a logarithm, and the share of
// rows inside their intervals. A configuration counts once, and a fit not at all.
func LeaveOutError() (mean, inside float64, err error) {
	all, err := records()
	if err != nil {
		return 0, 0, err
	}
	out, err := LeaveOut()
	if err != nil {
		return 0, 0, err
	}
	same := map[string]float64{}
	for _, r := range all {
		if !r.fit {
			same[r.traits.configuration]++
		}
	}
	n := float64(len(same))
	for i, o := range out {
		if all[i].fit {
			continue
		}
		share := 1 / same[all[i].traits.configuration] / n
		mean += share * math.Abs(o.Error)
		if o.Inside {
			inside += share
		}
	}
	return mean, inside, nil
}

// z80 is the half width of a normal distribution's middle 80 %, in standard deviations.
const z80 = 1.2815515655446004

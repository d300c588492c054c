package referee

import (
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// The precision of a module comes from the folder: from the types of its tensors and from what
// step.json says of autocast and TF32.

// formatOf returns the format of a type, and whether it is one of floating point.
func formatOf(dtype string) (reference.Format, bool) {
	switch dtype {
	case "BF16":
		return reference.BF16, true
	case "F16":
		return reference.FP16, true
	case "F32":
		return reference.FP32, true
	case "F64":
		return reference.Exact, true
	}
	return reference.Exact, false
}

// leastOf is the relative error of a row that storage in a type costs, or for FP32 what another
// order of sums costs.
func leastOf(dtype string) float64 {
	switch dtype {
	case "BF16":
		return 1.7e-3
	case "F16":
		return 2.1e-4
	case "F64":
		return 1e-9
	}
	return 2e-7
}

var formatNames = map[reference.Format]string{reference.Exact: "F64", reference.BF16: "BF16", reference.FP16: "F16", reference.FP32: "F32"}

// formatIn returns the format of a port or a parameter of the folder.
func (j *judge) formatIn(name string, r step.Repeat) (reference.Format, bool) {
	dtype, ok := j.folder.DType(step.Activations, name+r.Suffix())
	if !ok {
		dtype, ok = j.folder.DType(step.Weights, name)
	}
	if !ok {
		return reference.Exact, false
	}
	return formatOf(dtype)
}

// roundings returns the three roundings of a module, and the least error of a row in its format.
func (j *judge) roundings(m *reference.Module, r step.Repeat) ([]reference.Rounding, float64) {
	lowest := reference.Exact
	for _, p := range append(append([]reference.Port{}, m.Inputs...), m.Outputs...) {
		if f, ok := j.formatIn(p.Name, r); ok && lower(f, lowest) {
			lowest = f
		}
	}
	for _, name := range m.Params[:min(len(m.Params), 3)] {
		if f, ok := j.formatIn(name, r); ok && lower(f, lowest) {
			lowest = f
		}
	}
	base := reference.Rounding{Format: lowest, TF32: j.folder.Info.Matmul == "high" || j.folder.Info.Matmul == "medium"}
	base.Of = func(name string) reference.Format {
		if f, ok := j.formatIn(name, r); ok {
			return f
		}
		return lowest
	}
	switch {
	case strings.Contains(j.folder.Info.Autocast, "bfloat16"):
		base.Autocast = reference.BF16
	case strings.Contains(j.folder.Info.Autocast, "float16"):
		base.Autocast = reference.FP16
	}
	ways := threeWays(base)
	switch m.Kind {
	case reference.Router, reference.Loss, reference.Residual, reference.Handover, reference.Embedding:
		ways = ways[:2] // these read exactly what was recorded: a moved input would excuse a lower precision
	}
	return ways, leastOf(formatNames[lowest])
}

// threeWays returns a rounding after every operation, one at the ends of kernels, and one with
// inputs moved at random.
func threeWays(base reference.Rounding) []reference.Rounding {
	eager, fused, moved := base, base, base
	eager.Way, fused.Way, moved.Way, moved.Jitter = reference.EveryOp, reference.KernelEnds, reference.KernelEnds, 81
	return []reference.Rounding{eager, fused, moved}
}

// lower reports whether a holds fewer values than b.
func lower(a, b reference.Format) bool {
	return a != reference.Exact && (b == reference.Exact || a < b)
}

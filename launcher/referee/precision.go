package referee

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// The precision of a module comes from the folder: from the types of its tensors and from what
// step.json says of autocast and TF32.
var (
	formats     = map[string]reference.Format{"BF16": reference.BF16, "F16": reference.FP16, "F32": reference.FP32, "F64": reference.Exact}
	formatNames = map[reference.Format]string{reference.Exact: "F64", reference.BF16: "BF16", reference.FP16: "F16", reference.FP32: "F32"}
)

// leastOf is the relative error of a row that storage in a type costs, or for FP32 what another
// order of sums costs.
func leastOf(dtype string) float64 {
	least, ok := map[string]float64{"BF16": 1.7e-3, "F16": 2.1e-4, "F64": 1e-9}[dtype]
	if !ok {
		return 2e-7
	}
	return least
}

// sumOf8Bits is the error per term of sums of 8-bit products, which a GPU may keep in few bits. It
// is twice what an H200 made of 8,192 terms in its fast mode.
const sumOf8Bits = 0x1p-21

// roundings returns the three roundings of a module, and the least error of a row in its format.
func (j *judge) roundings(m *reference.Module, r step.Repeat) ([]reference.Rounding, float64) {
	formatIn := func(name string) (reference.Format, bool) {
		dtype, ok := j.folder.DType(step.Activations, name, r)
		if !ok {
			dtype, _ = j.folder.DType(step.Weights, name, step.Repeat{})
		}
		format, ok := formats[dtype]
		return format, ok
	}
	lowest := reference.Exact
	names := slices.Clone(m.Params[:min(len(m.Params), 3)])
	for _, p := range slices.Concat(m.Inputs, m.Outputs) {
		names = append(names, p.Name)
	}
	for _, name := range names {
		if f, ok := formatIn(name); ok && f != reference.Exact && (lowest == reference.Exact || f < lowest) {
			lowest = f
		}
	}
	base := reference.Rounding{Format: lowest, TF32: j.folder.Info.Matmul == "high" || j.folder.Info.Matmul == "medium"}
	if j.folder.Info.FP8 != "" {
		base.Recipe = j.recipe
	}
	base.Of = func(name string) reference.Format {
		if f, ok := formatIn(name); ok {
			return f
		}
		return lowest
	}
	if low := j.folder.Info.Autocast; strings.Contains(low, "bfloat16") {
		base.Autocast = reference.BF16
	} else if strings.Contains(low, "float16") {
		base.Autocast = reference.FP16
	}
	ways := threeWays(base)
	if m.Kind == reference.Linear && j.quantized(m.Path) { // a moved input has other codes
		ways = ways[:2]
	}
	switch m.Kind {
	case reference.Router, reference.Index, reference.IndexLoss, reference.Loss, reference.Residual, reference.Handover, reference.Embedding, reference.Mix:
		ways = ways[:2] // these read exactly what was recorded: a moved input would excuse a lower precision
	case reference.Hyper, reference.HyperHead: // which compute in FP32 in any case
		if lowest != reference.FP32 {
			ways = ways[:2]
		}
	}
	least := leastOf(formatNames[lowest])
	if dims, ok := j.folder.Model.ParamDims(m.Path + ".weight"); ok && m.Kind == reference.Linear && j.quantized(m.Path) {
		least = math.Hypot(least, sumOf8Bits*float64(max(dims[0], dims[len(dims)-1])))
	}
	if m.Kind.Glue() && base.Autocast != reference.Exact { // what it adds has passed casts
		least = max(least, leastOf(formatNames[base.Autocast]))
	}
	return ways, least
}

// covers are the words that may follow the recipe in step.json: the products of experts, or those
// of all other linear layers but routers and heads. Without a word, it covers both.
var covers = []string{"experts", "linears"}

// recipe returns how a linear layer's operands are cast to 8 bits; nil: they are not.
func (j *judge) recipe(path string) *reference.Recipe {
	what, words := covers[1], strings.Fields(j.folder.Info.FP8)
	if strings.Contains(path, ".experts.") {
		what = covers[0]
	}
	switch {
	case len(words) == 0 || !strings.HasPrefix(path, "model.") || strings.HasSuffix(path, "shared_head.head"):
		return nil
	case j.blind:
		return &reference.Recipe{}
	case len(words) > 1 && !slices.Contains(words[1:], what):
		return nil
	}
	return reference.Recipes[words[0]]
}

// quantized reports whether a linear layer's operands have 8 bits, or may have.
func (j *judge) quantized(path string) bool { return j.recipe(path) != nil }

// hasQuantized reports whether a module has products of 8 bits, or may have.
func (j *judge) hasQuantized(m *reference.Module) bool {
	return m.Kind == reference.Linear && j.quantized(m.Path) || m.Kind == reference.Experts && j.quantized(m.Path+".0.") ||
		slices.ContainsFunc(m.Children, j.hasQuantized)
}

// checkRecipe notes whether the scales of quantized products are known. If they are not, modules
// that have such products cannot be judged.
func (j *judge) checkRecipe() {
	words := strings.Fields(j.folder.Info.FP8)
	if len(words) == 0 {
		return
	}
	other := func(word string) bool { return !slices.Contains(covers, word) }
	if reference.Recipes[words[0]] != nil && !slices.ContainsFunc(words[1:], other) {
		j.report.Read = append(j.report.Read, "FP8 recipe "+j.folder.Info.FP8+": its casts are part of the rounding")
		return
	}
	j.blind = true
	j.report.doubt(fmt.Sprintf("modules with FP8 products: fp8 in step.json is %.60q: scales follow from the data for %s, which may be followed by %s", j.folder.Info.FP8,
		strings.Join(slices.Sorted(maps.Keys(reference.Recipes)), ", "), strings.Join(covers, " or ")))
}

// threeWays returns a rounding after every operation, one at the ends of kernels, and one with
// inputs moved at random.
func threeWays(base reference.Rounding) []reference.Rounding {
	eager, fused := base, base
	eager.Way, eager.Ties = reference.EveryOp, [2]float64{1, 1}
	fused.Way, fused.Ties = reference.KernelEnds, [2]float64{-1, -1}
	moved := fused
	moved.Jitter = 81
	return []reference.Rounding{eager, fused, moved}
}

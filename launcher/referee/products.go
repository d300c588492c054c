package referee

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/gpusums"
)

// products compares the products of linear layers with the sums of the step's GPU. A gradient that
// is wrong as a whole, such as a doubled one, tells nothing of its product.
func (j *judge) products(all bool) {
	var wrong []string
	for _, line := range j.report.Modules {
		for _, c := range line.wrong("gradient") {
			wrong = append(wrong, c.Name)
		}
	}
	j.report.Products = gpusums.Check(j.folder, j.modules, gpusums.Facts{Find: j.find, Quantized: j.quantized, Wrong: wrong, All: all})
}

// blame tells findings whether the products of their module are right. A wrong product of a module
// without findings is one itself.
func (j *judge) blame() {
	r, right := j.report, map[*Finding]int{}
	for _, p := range r.Products.Judged {
		at := slices.IndexFunc(r.Findings, func(f *Finding) bool {
			return strings.HasPrefix(p.Module+".", f.Module+".") || slices.Contains(f.Names, p.Tensor)
		})
		if at < 0 && p.Verdict == gpusums.Wrong {
			module, _, _ := strings.Cut(strings.Replace(p.Module, ".experts.", ".experts:", 1), ":")
			at = len(r.Findings)
			r.Findings = append(r.Findings, &Finding{Module: module, Part: "product", Look: "the kernel that computed it, a patched linear layer, and the card"})
		}
		switch {
		case at < 0:
		case p.Verdict == gpusums.EqualBits:
			right[r.Findings[at]]++
		case p.Verdict == gpusums.Wrong:
			f := r.Findings[at]
			f.Names, f.Says, right[f] = append(f.Names, p.Tensor), append(f.Says, p.Says()), math.MinInt
		}
	}
	for f, n := range right {
		if n > 0 {
			f.Says = append(f.Says, fmt.Sprintf("Not the GPU: %d products of this module were compared, and all have equal bits. Look in the model.", n))
		}
	}
}

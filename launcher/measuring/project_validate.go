package measuring

// project validate: how far predictions of published runs are off.

import (
	"encoding/json"
	"fmt"

	"spmoe/bench/projection"
	"spmoe/launcher/cli"
)

// validate prints the errors that data/effects.json has, by tier and by row.
func (f *projectFlags) validate(env cli.Env) error {
	e := projection.PublishedEffects()
	if f.json {
		encoder := json.NewEncoder(env.Out)
		encoder.SetIndent("", " ")
		return encoder.Encode(e)
	}
	w := env.Out
	fmt.Fprintf(w, "parameters of %s, SHA-256 %s\n", projection.ParameterVersion(), projection.ParameterHash())
	fmt.Fprintf(w, "mean absolute errors of the logarithm, mean errors, and rows inside their 80 %% intervals:\n")
	fmt.Fprintf(w, "  blind, before the results were opened\n  %-5s %-32s %5s %8s %7s %7s\n", "tier", "", "rows", "error", "bias", "inside")
	for _, t := range e.Tiers {
		if t.Blind > 0 {
			fmt.Fprintf(w, "  %-5s %-32s %5d %7.1f%% %+6.1f%% %6.0f%%\n", t.Name, t.About, t.Rows, 100*t.Blind, 100*t.BlindBias, 100*t.BlindInside)
		}
	}
	for i, rule := range []string{"one MFU per precision", "one MFU per GPU and precision", "the MFU of the row that has most in common"} {
		fmt.Fprintf(w, "        %-45s %.1f%%\n", rule, 100*e.Baselines[i])
	}
	fmt.Fprintf(w, "  each cluster (model, GPU, framework) from the others\n  %-5s %-32s %5s %8s %7s %7s %9s\n", "tier", "", "rows", "error", "bias", "inside", "clusters")
	for _, t := range e.Tiers {
		fmt.Fprintf(w, "  %-5s %-32s %5d %7.1f%% %+6.1f%% %6.0f%% %9d\n", t.Name, t.About, t.Rows, 100*t.Error, 100*t.Bias, 100*t.Inside, t.Clusters)
	}
	fmt.Fprintf(w, "\n  %-40s %-4s %9s %9s %8s  %s\n", "row", "tier", "published", "predicted", "error", "80 % interval")
	for _, r := range e.Rows {
		mark := ""
		if !r.Inside() {
			mark = " outside"
		}
		fmt.Fprintf(w, "  %-40s %-4s %9.0f %9.0f %+7.1f%%  %.0f-%.0f%s\n",
			r.ID, r.Tier, r.Published, r.Predicted, 100*(r.Predicted/r.Published-1), r.Low, r.High, mark)
	}
	fmt.Fprintf(w, "\nnot predicted:\n")
	for _, x := range projection.ExcludedRows() {
		fmt.Fprintf(w, "  %s: %s\n", x.Rows, x.Why)
	}
	return nil
}

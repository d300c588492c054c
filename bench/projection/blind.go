package projection

// Predictions of runs whose throughput is kept apart: one median and one interval per row.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/internal/strictjson"
)

// blindFile holds the rows of a blind test.
type blindFile struct {
	About string     `json:"about"`
	Rows  []blindRow `json:"rows"`
}

type blindRow struct {
	ID   string   `json:"id"`
	Tier string   `json:"tier"`
	Run  blindRun `json:"run"`
}

// blindRun is a run as its source describes it. Nil: not published.
type blindRun struct {
	Model         string  `json:"model"`
	GPU           string  `json:"gpu"`
	GPUs          int     `json:"gpus"`
	Precision     string  `json:"precision"`
	Seq           int     `json:"seq"`
	Batch         *int    `json:"batch"`
	MicroBatch    *int    `json:"micro_batch"`
	MTP           bool    `json:"mtp"`
	TP            int     `json:"tp"`
	PP            *int    `json:"pp"`
	VP            *int    `json:"vp"`
	EP            *int    `json:"ep"`
	CP            int     `json:"cp"`
	Recompute     *string `json:"recompute"`
	Dispatcher    *string `json:"dispatcher"` // as the row's software says; its stack has it
	Routing       string  `json:"routing"`
	Deterministic bool    `json:"deterministic"`
}

// imbalances are those of a router in its first hundred steps, with their weights. Source: none of
// these runs; with trained routers, imbalance costs 8 to 20 % of the throughput
// (Megatron-MoE-ModelZoo), and early ones are less balanced.
var imbalances = []struct{ value, weight float64 }{{1.2, 0.25}, {1.6, 0.5}, {2.2, 0.25}}

// weighted is a run with the probability that it is the one meant.
type weighted struct {
	Run
	weight float64
}

// runs returns the runs that a row may mean.
func (b blindRow) runs(e softwareEntry) (all []weighted, err error) {
	if b.Run.CP > 1 {
		return nil, fmt.Errorf("context parallelism of %d is not modelled: give cp 1", b.Run.CP)
	}
	for _, o := range e.Options {
		r := b.run(o)
		if r.Routing != Natural {
			all = append(all, weighted{r, cmp.Or(o.Weight, 1)})
			continue
		}
		for _, i := range imbalances {
			r.Imbalance = i.value
			all = append(all, weighted{r, cmp.Or(o.Weight, 1) * i.weight})
		}
	}
	return all, nil
}

// run returns the row's run with an option's settings where the row has none.
func (b blindRow) run(o softwareOption) Run {
	r := b.Run
	return Run{
		Model: r.Model, GPU: r.GPU, GPUs: r.GPUs, Precision: r.Precision, Seq: r.Seq, MTP: r.MTP, TP: r.TP,
		Batch: or(r.Batch, o.Batch), MicroBatch: or(r.MicroBatch, o.MicroBatch), PP: or(r.PP, o.PP), VP: or(r.VP, o.VP), EP: or(r.EP, o.EP),
		Recompute: policyOf(or(r.Recompute, cmp.Or(o.Recompute, "none"))), Routing: routingOf(r.Routing), Deterministic: r.Deterministic,
		Stack: o.Stack, Graphs: o.Graphs, Duplicate: 1,
	}
}

func or[T any](given *T, otherwise T) T {
	if given != nil {
		return *given
	}
	return otherwise
}

// policyOf translates the words of other frameworks for what they recompute.
func policyOf(recompute string) string {
	if known, ok := map[string]string{"norm, act": "layernorm+moe_act", "selective (core attention)": "core_attn"}[recompute]; ok {
		return known
	}
	return recompute
}

// routingOf does the same for routing: AutoModel's fake gate takes experts in turn, Megatron's and
// Primus' forced balance draws them at random.
func routingOf(routing string) string {
	switch {
	case strings.HasPrefix(routing, "natural"):
		return Natural
	case strings.Contains(routing, "fake gate"):
		return RoundRobin
	case strings.HasPrefix(routing, "balanced"):
		return Uniform
	}
	return routing
}

// Blind is what the model says about the rows of a blind test.
type Blind struct {
	Hash string          `json:"hash"` // of the package's code and data: see [CodeHash]
	Rows []BlindEstimate `json:"rows"`
}

// BlindEstimate is the prediction of one row, in tokens/s per GPU.
type BlindEstimate struct {
	ID     string      `json:"id"`
	Tokens float64     `json:"tokens_per_s_per_gpu"` // median
	Low    float64     `json:"low"`                  // 10th percentile
	High   float64     `json:"high"`                 // 90th
	Terms  []BlindTerm `json:"terms"`                // the three largest of the likeliest run
	Tier   string      `json:"-"`
}

// BlindTerm is a share of the time per token, before the correction by published rows.
type BlindTerm struct {
	Term  string  `json:"term"`
	Share float64 `json:"share"`
}

// JSON returns the predictions as a file: hash and rows, one per line.
func (b Blind) JSON() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "{\n \"hash\": %q,\n \"rows\": [\n", b.Hash)
	for i, r := range b.Rows {
		line, err := json.Marshal(r)
		if err != nil {
			panic(fmt.Sprintf("projection: %v", err)) // numbers and names only
		}
		end := ",\n"
		if i == len(b.Rows)-1 {
			end = "\n"
		}
		out.WriteString("  " + string(line) + end)
	}
	out.WriteString(" ]\n}\n")
	return out.Bytes()
}

// PredictBlind predicts all rows of a file in the format of blind-runs.json. An error names the row
// and what is wrong with it.
func PredictBlind(text []byte) (Blind, error) {
	var file blindFile
	if err := strictjson.Unmarshal(text, &file); err != nil {
		return Blind{}, err
	}
	if len(file.Rows) == 0 {
		return Blind{}, fmt.Errorf("there are no rows: give {\"rows\": [{\"id\": ..., \"run\": {...}}]}")
	}
	given, err := records()
	if err != nil {
		return Blind{}, err
	}
	b := Blind{Hash: CodeHash()}
	for i, row := range file.Rows {
		estimate, err := row.estimate(given)
		if err != nil {
			return Blind{}, fmt.Errorf("row %d, %q: %w", i+1, row.ID, err)
		}
		b.Rows = append(b.Rows, estimate)
	}
	return b, nil
}

// estimate mixes the predictions of the runs that a row may mean.
func (b blindRow) estimate(given []record) (out BlindEstimate, err error) {
	entry, err := data().software.entry(b.ID)
	if err != nil {
		return out, err
	}
	runs, err := b.runs(entry)
	if err != nil {
		return out, err
	}
	var m mixture
	for _, r := range runs {
		if err := r.Check(); err != nil {
			return out, err
		}
		tokens, err := throughput(r.Run, Central())
		if err != nil {
			return out, err
		}
		mean, variance, err := data().parameters.Residuals.correction(traitsOf(b.ID, r.Run), given)
		if err != nil {
			return out, err
		}
		m = append(m, normal{math.Log(tokens) + mean, math.Sqrt(variance + entry.Deviation*entry.Deviation), r.weight})
	}
	likeliest := slices.MaxFunc(runs, func(a, b weighted) int { return cmp.Compare(a.weight, b.weight) })
	out = BlindEstimate{ID: b.ID, Tier: b.Tier, Tokens: round(m.quantile(.5)), Low: round(m.quantile(.1)), High: round(m.quantile(.9))}
	out.Terms, err = largestTerms(likeliest.Run, 3)
	return out, err
}

// round returns the exponential of a logarithm to a tenth of a token/s.
func round(log float64) float64 { return math.Round(10*math.Exp(log)) / 10 }

// largestTerms returns the n largest terms of a run.
func largestTerms(r Run, n int) ([]BlindTerm, error) {
	e, err := newChecked(r, Central())
	if err != nil {
		return nil, err
	}
	c := e.total()
	all := Symbols()
	slices.SortStableFunc(all, func(a, b Symbol) int { return cmp.Compare(c[b], c[a]) })
	var terms []BlindTerm
	for _, s := range all[:n] {
		terms = append(terms, BlindTerm{s.String(), math.Round(1000*c[s]/c.sum()) / 1000})
	}
	return terms, nil
}

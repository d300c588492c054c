package calls

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"spmoe/collective/pipeline"
	"spmoe/launcher/referee"
	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// Linear computes y = x·wᵀ, dx = dy·w and dw = dyᵀ·x in a precision, as a layer of a model does. A
// result that is nil is not computed; dy may be nil without dx and dw. x and dy have contiguous
// columns, w [N, K] or [groups, N, K] and dw have no gaps.
func Linear(y, dx, dw, x, w, dy *Array, groups unsafe.Pointer, recipe, sum string, seed, step uint32, threads int32) error {
	p, err := moe.PrecisionByName(recipe)
	if err != nil {
		return err
	}
	s, err := mx.ParseSum(sum)
	if err != nil {
		return err
	}
	return run(threads, elements(y, dx, dw, x, w, dy), func(ex *tensor.Exec) error {
		l := moe.Products{X: x.dense(ex), W: w.tensor(), Seed: seed, Step: step}
		if w.Groups > 0 {
			l.Ends = ends(groups, w.Groups)
		}
		if y != nil {
			l.Y = y.matrix()
		}
		if dy != nil {
			l.DY = dy.dense(ex)
		}
		if dx != nil {
			l.DX = dx.matrix()
		}
		if dw != nil {
			l.DW = dw.tensor()
		}
		return l.Compute(ex, p, s)
	})
}

// Schedule returns the lists of a pipeline schedule by rank, in torch's notation, as JSON.
func Schedule(name string, ranks, stagesPerRank, microbatches int) ([]byte, error) {
	s, err := pipeline.New(name, ranks, stagesPerRank, microbatches)
	if err != nil {
		return nil, err
	}
	lists := make([][]string, len(s.Ranks))
	for r, list := range s.Ranks {
		lists[r] = names(list)
	}
	return json.Marshal(lists)
}

// names returns what each of all calls itself.
func names[T fmt.Stringer](all []T) (texts []string) {
	for _, one := range all {
		texts = append(texts, one.String())
	}
	return texts
}

// Check judges the training step in a folder, as "launcher check FOLDER" does, and returns the
// report as JSON.
func Check(path string) ([]byte, error) {
	report, err := referee.Judge(path, false, func(*referee.ModuleLine) {})
	if err != nil {
		return nil, err
	}
	return report.JSON()
}

// About returns what this build offers, as JSON. spmoe.py requires its own version of the exported
// functions, abi.
func About() ([]byte, error) {
	if err := cpu.Check(); err != nil {
		return nil, err
	}
	note, missing := "", cpu.Detected().Missing(cpu.AMX)
	if len(missing) == 1 && missing[0] == cpu.TileRegisters {
		note = fmt.Sprintf("Linux refuses the tile registers of AMX to this process: products use %s", cpu.Best())
	}
	recipes := map[string]map[string]cast{}
	for _, p := range moe.Precisions() {
		recipes[p.Name] = castsOf(p)
	}
	return json.Marshal(map[string]any{
		"abi": 3, "tier": cpu.Best().String(), "note": note, "threads": runtime.GOMAXPROCS(0),
		"formats": names(mx.Formats()), "sums": names(mx.Sums()), "scales": names(mx.ScaleModes()),
		"recipes": recipes, "schedules": pipeline.Names(),
	})
}

// cast is how a recipe quantizes an operand.
type cast struct {
	Format   string `json:"format"`
	Scale    string `json:"scale"`
	Rounding string `json:"rounding"`
}

// castsOf returns the casts of a precision by product and operand, such as "wgrad.dy". Experts and
// linear layers have the same, unless only experts are quantized.
func castsOf(p moe.Precision) map[string]cast {
	all := map[string]cast{}
	if p.Experts == nil {
		return all
	}
	r := *p.Experts
	for name, c := range map[string]mx.Cast{
		"forward.x": r.Forward.Left, "forward.w": r.Forward.Right, "dgrad.dy": r.Dgrad.Left,
		"dgrad.w": r.Dgrad.Right, "wgrad.dy": r.Wgrad.Left, "wgrad.x": r.Wgrad.Right,
	} {
		if c.Quantizes() {
			all[name] = cast{c.Format.String(), c.Mode.String(), strings.ToLower(c.Rounding.String())}
		}
	}
	return all
}

package calls

import (
	"encoding/json"
	"fmt"
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
func Schedule(name string, ranks, stagesPerRank, microbatches int) (text []byte, err error) {
	err = guarded(func() error {
		s, err := pipeline.New(name, ranks, stagesPerRank, microbatches)
		if err != nil {
			return err
		}
		lists := make([][]string, len(s.Ranks))
		for r, list := range s.Ranks {
			for _, slot := range list {
				lists[r] = append(lists[r], slot.String())
			}
		}
		text, err = json.Marshal(lists)
		return err
	})
	return text, err
}

// Check judges the training step in a folder, as "launcher check FOLDER" does, and returns the
// report as JSON.
func Check(path string) (text []byte, err error) {
	err = guarded(func() error {
		report, err := referee.Judge(path, func(*referee.ModuleLine) {})
		if err != nil {
			return err
		}
		text, err = report.JSON()
		return err
	})
	return text, err
}

// ABI is the version of the exported functions. spmoe.py requires its own.
const ABI = 2

// About returns what this build offers, as JSON.
func About() ([]byte, error) {
	if err := cpu.Check(); err != nil {
		return nil, err
	}
	about := struct {
		ABI       int                        `json:"abi"`
		Tier      string                     `json:"tier"`
		Note      string                     `json:"note"`
		Threads   int                        `json:"threads"`
		Formats   []string                   `json:"formats"`
		Sums      []string                   `json:"sums"`
		Scales    []string                   `json:"scales"`
		Recipes   map[string]map[string]cast `json:"recipes"`
		Schedules []string                   `json:"schedules"`
	}{ABI: ABI, Tier: cpu.Best().String(), Note: withoutTiles(cpu.Detected()), Threads: Threads(), Schedules: pipeline.Names()}
	about.Recipes = map[string]map[string]cast{}
	for _, f := range mx.Formats() {
		about.Formats = append(about.Formats, f.Name)
	}
	for _, s := range mx.Sums() {
		about.Sums = append(about.Sums, s.String())
	}
	for _, m := range mx.ScaleModes() {
		about.Scales = append(about.Scales, m.String())
	}
	for _, p := range moe.Precisions() {
		about.Recipes[p.Name] = castsOf(p)
	}
	return json.Marshal(about)
}

// withoutTiles says that this CPU has AMX, but the system does not let this process use it.
func withoutTiles(have cpu.Features) string {
	missing := have.Missing(cpu.AMX)
	if len(missing) == 1 && missing[0] == cpu.TileRegisters {
		return fmt.Sprintf("Linux refuses the tile registers of AMX to this process: products use %s", cpu.Best())
	}
	return ""
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
	r := p.Experts
	if r == nil {
		return all
	}
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

package page

// The data of a run's folder, which the script draws.

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
)

// Run is what the page of a run, or of several, shows of one.
type Run struct {
	Name     string            `json:"name"`
	Link     string            `json:"link,omitempty"` // to its own page
	Config   string            `json:"config,omitempty"`
	Settings map[string]string `json:"settings"` // those of Config by key
	Notes    []string          `json:"notes,omitempty"`

	Starts []record.Start `json:"starts,omitempty"`
	Made   int            `json:"made"` // steps
	Left   float64        `json:"left"` // seconds; 0: unknown
	Done   *record.Done   `json:"done,omitempty"`

	First   record.Number `json:"first"`   // training loss
	Tail    record.Number `json:"tail"`    // its mean over the last 10 steps
	Speed   record.Number `json:"speed"`   // of the median step, tokens/s
	MFU     record.Number `json:"mfu"`     // likewise
	Skipped int           `json:"skipped"` // steps
	Bits    [2]float64    `json:"bits"`    // per byte of 1 nat per token, of training and validation text; 0: unknown

	Curves map[string]Curve `json:"curves"` // by the quantity's figure; and loss, validation
	Loads  *HeatMap         `json:"loads,omitempty"`
	Times  *record.Times    `json:"times,omitempty"`
	Events []spmd.Event     `json:"events,omitempty"`

	Samples     []record.Sample `json:"samples,omitempty"`
	Checkpoints [][]string      `json:"checkpoints,omitempty"` // rows of a table
	Commands    [][2]string     `json:"commands,omitempty"`    // what for, and the command

	Folder string `json:"-"`
}

// Limits of what a page shows of a run: the newest.
const (
	maxConfig   = 1 << 20 // bytes
	mostEvents  = 200
	mostSamples = 50
	lossTail    = 10 // steps
)

// ReadRun reads the folder of a run. It returns an [fs.ErrNotExist] if the folder has no record.
func ReadRun(folder string) (Run, error) {
	r := Run{Folder: folder, Name: filepath.Base(folder), Settings: map[string]string{}}
	if path, err := filepath.Abs(folder); err == nil {
		r.Name = filepath.Base(path)
	}
	log, err := record.Read(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%w: give the folder of a run", err)
	} else if err != nil {
		return r, err
	}
	note := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Notes = append(r.Notes, err.Error())
		}
	}
	text, err := system.ReadFile(filepath.Join(folder, "config.toml"), maxConfig)
	note(err)
	var settings struct {
		Steps         int
		ScheduleSteps int `toml:"schedule_steps"`
	}
	var root map[string]any
	if r.Config = string(text); toml.Unmarshal(text, &root) == nil && toml.Unmarshal(text, &settings) == nil {
		r.flatten("", root)
	}
	r.addLog(log, settings.Steps)
	r.Events, err = record.ReadEvents(folder)
	note(err)
	r.Events = r.Events[max(0, len(r.Events)-mostEvents):]
	saved, err := checkpoint.List(folder)
	note(err)
	for _, c := range saved {
		r.Checkpoints = append(r.Checkpoints, []string{c.Name, fmt.Sprint(c.Step), c.Time.UTC().Format(time.DateTime), system.Bytes(c.Bytes), c.State()})
	}
	if len(saved) > 0 {
		r.addCommands(settings.Steps, settings.ScheduleSteps)
	}
	return r, nil
}

// flatten adds the values of a table to the settings by their full keys, such as optimizer.lr.
func (r *Run) flatten(prefix string, table map[string]any) {
	for key, value := range table {
		if inner, ok := value.(map[string]any); ok {
			r.flatten(prefix+key+".", inner)
		} else {
			r.Settings[prefix+key] = fmt.Sprint(value)
		}
	}
}

// addLog adds what the record says of a run of some steps.
func (r *Run) addLog(log *record.Log, steps int) {
	next, start := 0, record.Start{}
	for i, s := range log.Steps {
		for next < len(log.Starts) && log.Starts[next].Step < s.Step {
			start, next = log.Starts[next], next+1
		}
		log.Steps[i] = s.With(start)
		if r.Made = s.Step; s.Skipped {
			r.Skipped++
		}
	}
	if r.Done = log.Done; r.Done == nil {
		r.Left = log.Left(steps).Seconds()
	}
	r.Starts, r.Times, r.Loads = log.Starts, log.Times, loads(log.Loads)
	r.Samples = log.Samples[max(0, len(log.Samples)-mostSamples):]
	r.Curves = map[string]Curve{}
	add := func(figure string, s Series) {
		if c, ok := curve(s); ok {
			r.Curves[figure] = c
		}
	}
	for _, q := range record.Quantities {
		if q.Figure != "" {
			add(q.Figure, quantity(log, q))
		}
	}
	losses := Steps(log, "loss")
	add("loss", losses)
	add("validation", HeldOut(log))
	r.First = record.Number(math.NaN())
	if len(losses.Values) > 0 {
		r.First = record.Number(losses.Values[0])
	}
	r.Tail = record.Number(mean(Series{Values: losses.Values[max(0, len(losses.Values)-lossTail):]}.Finite()))
	r.Speed, r.MFU = median(Steps(log, "tps")), median(Steps(log, "mfu"))
	if b := start.BytesPerToken; b > 0 {
		r.Bits[0] = 1 / (math.Ln2 * b)
	}
	if n := len(log.Evals); n > 0 && log.Evals[n-1].Loss > 0 && log.Evals[n-1].BitsPerByte > 0 {
		r.Bits[1] = float64(log.Evals[n-1].BitsPerByte / log.Evals[n-1].Loss)
	}
}

// median returns the median of the finite values; NaN if there are none.
func median(s Series) record.Number {
	if v := s.Finite(); len(v) > 0 {
		return record.Number(report.Median(v))
	}
	return record.Number(math.NaN())
}

// addCommands adds what to do with a run of some steps next. A longer one keeps the learning rates.
func (r *Run) addCommands(steps, scheduled int) {
	run, ranks := report.Shell(r.Folder), 1
	if n := len(r.Starts); n > 0 {
		ranks = max(r.Starts[n-1].Ranks, 1)
	}
	resume := fmt.Sprintf("launcher -np %d train --resume --out %s", ranks, run)
	if r.Done != nil {
		if resume += fmt.Sprintf(" --steps %d", 2*r.Made); scheduled == 0 && steps > 0 {
			resume += fmt.Sprintf(" --schedule-steps %d", steps)
		}
	}
	generate, export := report.Commands(r.Folder)
	r.Commands = [][2]string{{"train further", resume}, {"write text", generate},
		{"measure the loss on other text", "launcher eval --checkpoint " + run + " --data FILE"}, {"export to Hugging Face", export}}
}

// Limits of the map of loads.
const (
	heatColumns = 80
	heatRows    = 160
	layerRows   = 32 // where there are more experts, a row is the mean of several
)

// loads returns the map of each expert's share of tokens to the mean of its layer: one row per
// expert, one column per recorded step.
func loads(list []record.Load) *HeatMap {
	shares := map[[2]int][]float64{} // by layer and step
	var steps, layers []int
	count := 0
	for _, l := range list {
		if len(l.Tokens) > 0 {
			shares[[2]int{l.Layer, l.Step}], count = relativeLoads(l.Tokens), max(count, len(l.Tokens))
			steps, layers = append(steps, l.Step), append(layers, l.Layer)
		}
	}
	if count == 0 {
		return nil
	}
	slices.Sort(steps)
	slices.Sort(layers)
	group := (count + layerRows - 1) / layerRows
	rows := (count + group - 1) / group
	steps, layers = thin(slices.Compact(steps), heatColumns), thin(slices.Compact(layers), max(1, heatRows/rows))
	h := &HeatMap{Most: 4}
	for _, step := range steps {
		h.Steps = append(h.Steps, float64(step))
	}
	for _, layer := range layers {
		h.Groups = append(h.Groups, fmt.Sprintf("layer %d", layer))
		for row := range rows {
			name := fmt.Sprintf("layer %d, expert %d", layer, row*group)
			if group > 1 {
				name += fmt.Sprintf(" to %d, mean", min((row+1)*group, count)-1)
			}
			line := make(Values, len(steps))
			for i, step := range steps {
				values := shares[[2]int{layer, step}]
				line[i] = math.Round(1e4*mean(values[min(row*group, len(values)):min((row+1)*group, len(values))])) / 1e4
			}
			h.Rows, h.Values = append(h.Rows, name), append(h.Values, line)
		}
	}
	return h
}

// thin keeps at most about n elements, among them the last.
func thin[T any](list []T, n int) (some []T) {
	every := (len(list) + n - 1) / n
	for i, x := range list {
		if (len(list)-1-i)%every == 0 {
			some = append(some, x)
		}
	}
	return some
}

// relativeLoads divides the tokens of experts by their mean.
func relativeLoads(tokens []int64) []float64 {
	var all int64
	for _, n := range tokens {
		all += n
	}
	shares := make([]float64, len(tokens))
	for i, n := range tokens {
		shares[i] = float64(n) * float64(len(tokens)) / float64(max(all, 1))
	}
	return shares
}

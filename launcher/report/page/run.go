package page

// The data of a run's folder, which the script draws.

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
)

// Run is what the page of a run shows.
type Run struct {
	Name     string            `json:"name"`
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
	Times  *record.Times    `json:"times,omitempty"`
	Events []spmd.Event     `json:"events,omitempty"`

	Samples     []record.Sample `json:"samples,omitempty"`
	Checkpoints [][]string      `json:"checkpoints,omitempty"` // rows of a table
}

// Limits of what a page shows of a run: the newest.
const (
	maxConfig   = 1 << 20 // bytes
	mostEvents  = 200
	mostSamples = 50
	lossTail    = 10 // steps
)

// readRun reads the folder of a run. It returns an [fs.ErrNotExist] if the folder has no record.
func readRun(folder string) (Run, error) {
	r := Run{Name: filepath.Base(folder), Settings: map[string]string{}}
	if path, err := filepath.Abs(folder); err == nil {
		r.Name = filepath.Base(path)
	}
	log, err := record.Read(folder)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
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
	var root map[string]any
	if r.Config = string(text); toml.Unmarshal(text, &root) == nil {
		r.flatten("", root)
	}
	steps, _ := root["steps"].(int64)
	r.addLog(log, int(steps))
	r.Events, err = record.ReadEvents(folder)
	note(err)
	r.Events = r.Events[max(0, len(r.Events)-mostEvents):]
	saved, err := checkpoint.List(folder)
	note(err)
	for _, c := range saved {
		r.Checkpoints = append(r.Checkpoints, []string{c.Name, fmt.Sprint(c.Step), c.Time.UTC().Format(time.DateTime), system.Bytes(c.Bytes), c.State})
	}
	return r, nil
}

// page returns the page of a run.
func (r Run) page() Page { return Page{Title: r.Name, Run: &r, Figures: record.Figures()} }

// WriteRun writes the page of a run to its folder. reload is the number of seconds after which it
// will be written again; 0: never.
func WriteRun(folder string, reload float64) error {
	r, err := readRun(folder)
	if err != nil {
		return err
	}
	p := r.page()
	p.Reload = reload
	return p.Write(filepath.Join(folder, File))
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
	r.Starts, r.Times = log.Starts, log.Times
	r.Samples = log.Samples[max(0, len(log.Samples)-mostSamples):]
	r.Curves = map[string]Curve{}
	add := func(figure string, s Series) {
		if c, ok := curve(s); ok {
			r.Curves[figure] = c
		}
	}
	for _, q := range record.Figures() {
		add(q.Figure, quantity(log, q))
	}
	losses := named(log, "loss")
	add("loss", losses)
	add("validation", heldOut(log))
	r.First = record.Number(math.NaN())
	if len(losses.Values) > 0 {
		r.First = record.Number(losses.Values[0])
	}
	r.Tail = record.Number(mean(Series{Values: losses.Values[max(0, len(losses.Values)-lossTail):]}.Finite()))
	r.Speed, r.MFU = median(named(log, "tps")), median(named(log, "mfu"))
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

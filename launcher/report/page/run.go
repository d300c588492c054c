package page

// The content of a run's folder.

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
)

// Run is the content of a run's folder.
type Run struct {
	Folder string
	Config string // TOML; empty if missing
	Log    record.Log
	Events []spmd.Event

	Checkpoints []checkpoint.Entry
	Notes       []string // what could not be read

	settings settings
}

// settings are the values of the configuration that a page shows. Those that are missing are zero.
type settings struct {
	Flavor, Precision, Tokenizer string
	Steps                        int
	ScheduleSteps                int `toml:"schedule_steps"`
	Model                        struct{ Vocab int }
}

// maxConfig is far above the size of a configuration in bytes.
const maxConfig = 1 << 20

// ReadRun reads the folder of a run. It returns an [fs.ErrNotExist] if the folder has no record.
func ReadRun(folder string) (Run, error) {
	r := Run{Folder: folder}
	log, err := record.Read(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%w: give the folder of a run", err)
	} else if err != nil {
		return r, err
	}
	r.Log = *log
	next := 0 // of the starts
	var start record.Start
	for i, s := range r.Log.Steps {
		for next < len(r.Log.Starts) && r.Log.Starts[next].Step < s.Step {
			start, next = r.Log.Starts[next], next+1
		}
		r.Log.Steps[i] = s.With(start)
	}
	note := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Notes = append(r.Notes, err.Error())
		}
	}
	text, err := system.ReadFile(filepath.Join(folder, "config.toml"), maxConfig)
	note(err)
	if r.Config = string(text); toml.Unmarshal(text, &r.settings) != nil {
		r.settings = settings{}
	}
	r.Events, err = record.ReadEvents(folder)
	note(err)
	r.Checkpoints, err = checkpoint.List(folder)
	note(err)
	return r, nil
}

// tokens names the tokens of the run's losses: those of runs with equal names are comparable.
func (r Run) tokens() string {
	return fmt.Sprintf("%s, %d", r.settings.Tokenizer, r.settings.Model.Vocab)
}

// name returns the name of the run's folder.
func (r Run) name() string {
	path, err := filepath.Abs(r.Folder)
	if err != nil {
		path = r.Folder
	}
	return filepath.Base(path)
}

// made returns the number of steps that are made.
func (r Run) made() int {
	if n := len(r.Log.Steps); n > 0 {
		return r.Log.Steps[n-1].Step
	}
	return 0
}

// state says how far the run is.
func (r Run) state() string {
	switch {
	case r.Log.Done != nil:
		return "done"
	case r.made() == 0:
		return "no step yet"
	case r.settings.Steps > 0:
		return fmt.Sprintf("step %d of %d", r.made(), r.settings.Steps)
	}
	return report.Plural(r.made(), "step") + " made"
}

// start returns the newest start; the zero value if there is none.
func (r Run) start() (s record.Start) {
	if n := len(r.Log.Starts); n > 0 {
		s = r.Log.Starts[n-1]
	}
	return s
}

// tokensPerStep returns the tokens of a step; 0 if unknown.
func (r Run) tokensPerStep() float64 {
	if len(r.Log.Starts) == 0 {
		return 0
	}
	return float64(r.Log.Starts[0].Tokens)
}

// loss is a kind of loss, with the bits per byte of 1 nat per token; 0: unknown.
type loss struct {
	Series
	bits float64
}

// training returns the training loss.
func (r Run) training() loss {
	l := loss{Series: Steps(&r.Log, "loss")}
	if b := r.start().BytesPerToken; b > 0 {
		l.bits = 1 / (math.Ln2 * b)
	}
	return l
}

// heldOut returns the validation loss.
func (r Run) heldOut() loss {
	l := loss{Series: HeldOut(&r.Log)}
	if n := len(r.Log.Evals); n > 0 && r.Log.Evals[n-1].Loss > 0 && r.Log.Evals[n-1].BitsPerByte > 0 {
		l.bits = float64(r.Log.Evals[n-1].BitsPerByte / r.Log.Evals[n-1].Loss)
	}
	return l
}

// in returns the loss in bits per byte, or in nats per token. It is NaN in an unknown unit.
func (l loss) in(bits bool) Series {
	switch {
	case !bits:
		return l.Series
	case l.bits == 0:
		return l.Scaled(math.NaN())
	}
	return l.Scaled(l.bits)
}

package page

// The content of a run's folder.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report/export"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trace"
)

// Run is the content of a run's folder.
type Run struct {
	Folder string
	Config string // TOML; empty if missing
	Log    record.Log
	Events []spmd.Event

	Checkpoints []checkpoint.Entry
	Projection  *runProjection // nil: none
	Notes       []string       // what could not be read
	Files       []string       // other files and folders of the run that exist

	settings settings
	linked   bool // the page lies in the folder, so that it can link to files
}

// settings are the values of the configuration that a page shows. Those that are missing are zero.
type settings struct {
	Flavor, Precision, Tokenizer string
	Steps                        int
	ScheduleSteps                int `toml:"schedule_steps"`
	Model                        struct{ Vocab int }
}

// runProjection is the projected throughput of a cluster of GPUs with a run's routing, as train
// --project writes it to the run's folder.
type runProjection struct {
	Budget struct {
		Tokens    float64 // per second and GPU
		Low, High float64 // 80 % interval of Tokens
		Run       struct {
			Model string
			GPU   string
			GPUs  int
		}
	}
}

// shownFiles are the files and folders that a page names, if they exist.
var shownFiles = []string{"config.toml", record.File, record.EventsFile, trace.File, export.CSVFile, export.TensorBoardFolder + "/"}

// Limits far above the sizes of files in bytes.
const (
	maxConfig     = 1 << 20
	maxProjection = 4 << 20
)

// ReadRun reads the folder of a run. It returns an [fs.ErrNotExist] if the folder has no record.
func ReadRun(folder string) (Run, error) {
	r := Run{Folder: folder}
	log, err := record.Read(folder)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return r, fmt.Errorf("%w: give the folder of a run", err)
	} else if err != nil {
		return r, err
	}
	r.Log = *log
	for i, s := range r.Log.Steps {
		r.Log.Steps[i] = s.With(r.startOf(s.Step))
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
	text, err = system.ReadFile(filepath.Join(folder, projectionFile), maxProjection)
	if note(err); err == nil {
		if err := json.Unmarshal(text, &r.Projection); err != nil {
			note(fmt.Errorf("%s: %w", projectionFile, err))
			r.Projection = nil
		}
	}
	for _, name := range shownFiles {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			r.Files = append(r.Files, name)
		}
	}
	return r, nil
}

// WriteRun writes the page of a run to its folder.
func WriteRun(folder string) error {
	r, err := ReadRun(folder)
	if err != nil {
		return err
	}
	r.linked = true
	return r.Page(false).Write(filepath.Join(folder, File))
}

// tokens names the tokens of the run's losses: those of runs with equal names are comparable.
func (r Run) tokens() string {
	return fmt.Sprintf("%s, %d", r.settings.Tokenizer, r.settings.Model.Vocab)
}

// startOf returns the start of the process that made a step.
func (r Run) startOf(step int) (s record.Start) {
	for _, start := range r.Log.Starts {
		if start.Step < step {
			s = start
		}
	}
	return s
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

// tokensPerStep returns the tokens of a step; 0 if unknown.
func (r Run) tokensPerStep() float64 {
	if len(r.Log.Starts) == 0 {
		return 0
	}
	return float64(r.Log.Starts[0].Tokens)
}

// file returns the name of a file or folder of the run, with a link if the page can have one.
func (r Run) file(name, address string) Cell {
	if r.linked {
		return Cell{Text: name, Link: address}
	}
	return Cell{Text: name}
}

func (r Run) speeds() Series { return Steps(&r.Log, "tps") }

// utilization is the model's FLOP/s as a percentage of the measured peak.
func (r Run) utilization() Series { return Steps(&r.Log, "mfu").Scaled(100) }

// count returns the number of events of a kind.
func (r Run) count(kind spmd.Kind) (n int) {
	for _, e := range r.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

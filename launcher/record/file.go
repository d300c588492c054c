package record

// Reading a record.

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"

	"spmoe/launcher/system"
)

// Line is one object of the file: exactly one field is set.
type Line struct {
	Start     *Start     `json:"start,omitempty"`
	Step      *Step      `json:"step,omitempty"`
	Eval      *Eval      `json:"eval,omitempty"`
	Load      *Load      `json:"load,omitempty"`
	Quantized *Quantized `json:"quantised,omitempty"`
	Phases    *Phases    `json:"phases,omitempty"`
	Sample    *Sample    `json:"sample,omitempty"`
	Times     *Times     `json:"times,omitempty"`
	Done      *Done      `json:"done,omitempty"`

	Choices *json.RawMessage `json:"choices,omitempty"` // of earlier versions, as Usage
	Usage   *json.RawMessage `json:"usage,omitempty"`
}

const (
	maxLine   = 1 << 20  // bytes, including the line end
	maxSample = 64 << 10 // bytes of a prompt or of a text
)

// check returns an error unless a line has one key.
func (l Line) check() error {
	keys := 0
	for i, fields := 0, reflect.ValueOf(l); i < fields.NumField(); i++ {
		if !fields.Field(i).IsNil() {
			keys++
		}
	}
	switch {
	case keys == 0:
		return errors.New("it has none of the known keys")
	case keys > 1:
		return errors.New("it has several keys, expected one")
	}
	return nil
}

// Number returns the step of a line; 0 if it has none.
func (l Line) Number() int {
	for i, fields := 0, reflect.ValueOf(l); i < fields.NumField(); i++ {
		if kind := fields.Field(i); !kind.IsNil() && kind.Elem().Kind() == reflect.Struct {
			if step := kind.Elem().FieldByName("Step"); step.IsValid() {
				return int(step.Int())
			}
		}
	}
	return 0
}

// before reports whether the line was written before a checkpoint of that step. A run that resumes
// there does not write the line again.
func (l Line) before(step int) bool {
	if l.Start != nil || l.Eval != nil || l.Sample != nil {
		return l.Number() < step
	}
	return l.Done == nil && l != (Line{}) && l.Number() <= step
}

func (l Line) addTo(log *Log) {
	switch {
	case l.Start != nil:
		log.Starts = append(log.Starts, *l.Start)
	case l.Step != nil:
		log.Steps = append(log.Steps, *l.Step)
	case l.Eval != nil:
		log.Evals = append(log.Evals, *l.Eval)
	case l.Load != nil:
		log.Loads = append(log.Loads, *l.Load)
	case l.Quantized != nil:
		log.Quantized = append(log.Quantized, *l.Quantized)
	case l.Phases != nil:
		log.Phases = append(log.Phases, *l.Phases)
	case l.Sample != nil:
		log.Samples = append(log.Samples, *l.Sample)
	case l.Times != nil:
		log.Times = l.Times
	case l.Done != nil:
		log.Done = l.Done
	}
}

// Read returns the record in the folder of a run. It ignores an incomplete last line, which a crash
// leaves. It returns an fs.ErrNotExist if there is no record.
func Read(run string) (*Log, error) {
	if file, err := system.OpenOwn(run, File, os.O_RDONLY); err != nil {
		return nil, err
	} else if err := file.Close(); err != nil {
		return nil, err
	}
	lines, _, err := Follow(run).Next()
	if err != nil {
		return nil, err
	}
	log := new(Log)
	for _, l := range lines {
		l.addTo(log)
	}
	return log, nil
}

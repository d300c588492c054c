package record

// Reading a record.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"spmoe/internal/strictjson"
)

// Line is one object of the file: exactly one field is set.
type Line struct {
	Start     *Start     `json:"start,omitempty"`
	Step      *Step      `json:"step,omitempty"`
	Eval      *Eval      `json:"eval,omitempty"`
	Load      *Load      `json:"load,omitempty"`
	Quantized *Quantized `json:"quantised,omitempty"`
	Choices   *Choices   `json:"choices,omitempty"`
	Phases    *Phases    `json:"phases,omitempty"`
	Sample    *Sample    `json:"sample,omitempty"`
	Usage     *Usage     `json:"usage,omitempty"`
	Times     *Times     `json:"times,omitempty"`
	Done      *Done      `json:"done,omitempty"`
}

// Number returns the step of a line; 0 if it has none.
func (l Line) Number() int {
	switch {
	case l.Start != nil:
		return l.Start.Step
	case l.Step != nil:
		return l.Step.Step
	case l.Eval != nil:
		return l.Eval.Step
	case l.Load != nil:
		return l.Load.Step
	case l.Quantized != nil:
		return l.Quantized.Step
	case l.Choices != nil:
		return l.Choices.Step
	case l.Phases != nil:
		return l.Phases.Step
	case l.Sample != nil:
		return l.Sample.Step
	}
	return 0
}

// before reports whether the line was written before a checkpoint of that step. A run that resumes
// there does not write the line again.
func (l Line) before(step int) bool {
	if l.Start != nil || l.Eval != nil || l.Choices != nil || l.Sample != nil {
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
	case l.Choices != nil:
		log.Choices = append(log.Choices, *l.Choices)
	case l.Phases != nil:
		log.Phases = append(log.Phases, *l.Phases)
	case l.Sample != nil:
		log.Samples = append(log.Samples, *l.Sample)
	case l.Usage != nil:
		log.Usage = l.Usage
	case l.Times != nil:
		log.Times = l.Times
	case l.Done != nil:
		log.Done = l.Done
	}
}

// Read returns the record in the folder of a run. It ignores an incomplete last line, which a crash
// leaves. It returns an fs.ErrNotExist if there is no record.
func Read(run string) (*Log, error) {
	if _, err := os.Lstat(filepath.Join(run, File)); err != nil {
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
	if err := log.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(run, File), err)
	}
	return log, nil
}

// parse reads the complete lines of a text that begins after some lines. It returns their length.
func parse(path string, text []byte, after int) (lines []Line, length int, err error) {
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, maxLine)
	in.Split(endedLines)
	for in.Scan() {
		var l Line
		if err = strictjson.Unmarshal(in.Bytes(), &l); err == nil {
			err = l.check()
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", path, after+len(lines)+1, err)
		}
		lines, length = append(lines, l), length+len(in.Bytes())+1
	}
	if err = in.Err(); errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("a line has more than %d bytes", maxLine-1)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s:%d: %w", path, after+len(lines)+1, err)
	}
	return lines, length, nil
}

// endedLines is a [bufio.SplitFunc] for complete lines, without their line ends. It drops an
// incomplete last line.
func endedLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

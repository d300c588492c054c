//go:build linux

package chaos

// The outcome of a run, read from its folder, and how outcomes are compared.

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report/export"
)

// outcome holds everything that must be the same with and without faults.
type outcome struct {
	record record.Log        // without times
	state  map[string]uint32 // checksums of the shards of the last checkpoint
	rest   json.RawMessage   // the trainer's state
	others int               // number of other checkpoints; which ones, depends on when a rank failed while it saved
	aside  int               // damaged checkpoints
	names  []string          // of all other files in the folder
}

func outcomeOf(folder string, steps int) (o outcome, err error) {
	log, err := record.Read(folder)
	if err != nil {
		return o, err
	}
	o.record = log.Timeless()
	if o.record.Done == nil {
		return o, errors.New("its record has not ended")
	}
	last := fmt.Sprintf("step-%08d", steps)
	saved, err := checkpoint.Open(filepath.Join(folder, last))
	if err != nil {
		return o, err
	}
	if err := errors.Join(saved.Meta(&o.rest), saved.Close()); err != nil {
		return o, err
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	o.state = map[string]uint32{}
	return o, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if isBad, _ := filepath.Match("step-*.bad*", name); isBad && e.IsDir() {
			o.aside++
			return fs.SkipDir
		}
		if isStep, _ := filepath.Match("step-[0-9]*", name); isStep && name != last && e.IsDir() {
			o.others++
			return fs.SkipDir
		}
		if isOld, _ := filepath.Match("*.jsonl.old*", name); isOld { // a run without a checkpoint started again
			return nil
		}
		if isEvents, _ := filepath.Match(filepath.Join(export.TensorBoardFolder, "events.out.tfevents.*"), name); isEvents {
			name = filepath.Join(export.TensorBoardFolder, "events") // the rest is time, host and process
		}
		if name != "." && name != record.EventsFile && !slices.Contains(o.names, name) {
			o.names = append(o.names, name)
		}
		if err != nil || filepath.Dir(name) != last || filepath.Ext(name) != ".safetensors" { // the other files contain the path of the run
			return err
		}
		data, err := os.ReadFile(path)
		o.state[name] = crc32.Checksum(data, table)
		return err
	})
}

// differences describes the differences from another run.
func (o *outcome) differences(want *outcome) (all []string) {
	for i := range max(len(o.record.Steps), len(want.record.Steps)) {
		if i >= len(o.record.Steps) || i >= len(want.record.Steps) || !same(o.record.Steps[i], want.record.Steps[i]) {
			all = append(all, fmt.Sprintf("%d steps are recorded, expected %d; they differ from step %d on", len(o.record.Steps), len(want.record.Steps), i+1))
			break
		}
	}
	if !same(o.record, want.record) {
		all = append(all, "the record differs")
	}
	if !same(o.rest, want.rest) {
		all = append(all, fmt.Sprintf("the trainer's state is %s, expected %s", o.rest, want.rest))
	}
	for name, sum := range want.state {
		if has, ok := o.state[name]; !ok || has != sum {
			all = append(all, fmt.Sprintf("%s differs: its checksum is %08x, expected %08x", name, has, sum))
		}
	}
	if o.others > want.others {
		all = append(all, fmt.Sprintf("its folder has %d more checkpoints, expected %d", o.others, want.others))
	}
	if o.aside != want.aside {
		all = append(all, fmt.Sprintf("%d damaged checkpoints were set aside, expected %d", o.aside, want.aside))
	}
	for _, name := range without(o.names, want.names) {
		all = append(all, fmt.Sprintf("%s is left in its folder", name))
	}
	for _, name := range without(want.names, o.names) {
		all = append(all, fmt.Sprintf("%s is missing in its folder", name))
	}
	return all
}

// without returns the elements of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return slices.Contains(b, name) })
}

func same(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return string(x) == string(y)
}

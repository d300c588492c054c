package trainer

import (
	"path/filepath"

	"spmoe/internal/fault"
	"spmoe/launcher/checkpoint"
)

// faulty is a file system on whose operations a rank can be made to fail.
type faulty struct{ checkpoint.Files }

// Create implements [checkpoint.Files].
func (f faulty) Create(path string) (checkpoint.Output, error) {
	if filepath.Base(path) == "manifest.json" {
		fault.Point(fault.InManifest)
	}
	out, err := f.Files.Create(path)
	fault.Point(fault.InCreate)
	return faultyOutput{out}, err
}

// Rename implements [checkpoint.Files].
func (f faulty) Rename(from, to string) error {
	fault.Point(fault.InRename)
	defer fault.Point(fault.AfterRename)
	return f.Files.Rename(from, to)
}

// Remove implements [checkpoint.Files].
func (f faulty) Remove(path string) error {
	fault.Point(fault.InPrune)
	return f.Files.Remove(path)
}

type faultyOutput struct{ checkpoint.Output }

// Write implements [io.Writer]. Where the rank fails, the first half is written.
func (o faultyOutput) Write(p []byte) (n int, err error) {
	if !fault.Armed() {
		return o.Output.Write(p)
	}
	if n, err = o.Output.Write(p[:len(p)/2]); err == nil {
		fault.Point(fault.InWrite)
		var rest int
		rest, err = o.Output.Write(p[len(p)/2:])
		n += rest
	}
	return n, err
}

// Sync implements [checkpoint.Output].
func (o faultyOutput) Sync() error {
	fault.Point(fault.InSync)
	return o.Output.Sync()
}

package save

// Checkpoint files on which tests make a rank fail.

import (
	"bytes"
	"io/fs"
	"path/filepath"

	"spmoe/internal/fault"
	"spmoe/launcher/checkpoint"
)

// faulty is a file system on which a rank can be made to fail at any operation.
type faulty struct{ checkpoint.Files }

// Create implements [checkpoint.Files].
func (f faulty) Create(path string) (checkpoint.Output, error) {
	if filepath.Base(path) == "manifest.json" {
		fault.Point(fault.InManifest)
	}
	out, err := f.Files.Create(path)
	fault.Point(fault.InCreate)
	return faultyOutput{out, path}, err
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

type faultyOutput struct {
	checkpoint.Output
	path string
}

// Write implements [io.Writer]. If the rank fails, the first half is written. A requested
// corruption changes the file, not the memory.
func (o faultyOutput) Write(p []byte) (n int, err error) {
	if !fault.Armed() {
		return o.Output.Write(p)
	}
	half := len(p) / 2
	if n, err = o.Output.Write(p[:half]); err != nil {
		return n, err
	}
	rest := bytes.Clone(p[half:])
	if err := fault.Try(fault.InWrite, rest); err != nil {
		return n, &fs.PathError{Op: "write", Path: o.path, Err: err}
	}
	more, err := o.Output.Write(rest)
	return n + more, err
}

// Sync implements [checkpoint.Output].
func (o faultyOutput) Sync() error {
	fault.Point(fault.InSync)
	return o.Output.Sync()
}

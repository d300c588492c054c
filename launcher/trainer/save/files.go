package save

// The files of checkpoints.

import (
	"bytes"
	"io/fs"
	"path/filepath"

	"spmoe/internal/fault"
	"spmoe/launcher/checkpoint"
)

// runFiles is the file system of a run's checkpoints. Writes fail when ctx has ended. Writing
// is progress: a rank that waits for it is not hung. A rank can be made to fail at any operation.
type runFiles struct {
	checkpoint.Files
	saver *Saver
}

// Create implements [checkpoint.Files].
func (f runFiles) Create(path string) (checkpoint.Output, error) {
	if filepath.Base(path) == "manifest.json" {
		fault.Point(fault.InManifest)
	}
	out, err := f.Files.Create(path)
	fault.Point(fault.InCreate)
	return runOutput{out, f.saver, path}, err
}

// Rename implements [checkpoint.Files].
func (f runFiles) Rename(from, to string) error {
	fault.Point(fault.InRename)
	defer fault.Point(fault.AfterRename)
	return f.Files.Rename(from, to)
}

// Remove implements [checkpoint.Files].
func (f runFiles) Remove(path string) error {
	fault.Point(fault.InPrune)
	return f.Files.Remove(path)
}

type runOutput struct {
	checkpoint.Output
	saver *Saver
	path  string
}

// Write implements [io.Writer]. If the rank fails, the first half is written. A requested
// corruption changes the file, not the memory.
func (o runOutput) Write(p []byte) (n int, err error) {
	if err := o.saver.ctx.Err(); err != nil {
		return 0, err
	}
	o.saver.comm.Progress().Add(1)
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
func (o runOutput) Sync() error {
	fault.Point(fault.InSync)
	return o.Output.Sync()
}

package checkpoint

// The space of checkpoints on a disk.

import (
	"fmt"
	"path/filepath"
	"syscall"

	"spmoe/launcher/system"
)

// PartBytes returns the most bytes that a rank with these pieces adds to a checkpoint: its shard,
// its receipt and its part of the manifest.
func PartBytes(pieces []Piece) (n int64) {
	const names, numbers, checksum = 3, 160, 11 // of a piece, and of a chunk in the receipt and the manifest
	for _, p := range pieces {
		n += int64(len(p.Bytes()) + names*len(p.Name) + numbers)
	}
	const header = 16 << 10
	return n + 2*checksum*chunksOf(n) + header
}

// Written returns the bytes that all ranks have written so far.
func (w *Writer) Written() int64 {
	n, _ := bytesIn(w.temp)
	return n
}

// bytesIn returns the bytes of the files in a folder.
func bytesIn(path string) (n int64, err error) {
	files, err := system.ReadDir(path)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			n += info.Size()
		}
	}
	return n, err
}

// CheckFreed returns an error unless deleting the checkpoints of a run in the folder dir frees need
// bytes of its disk, as far as this machine can tell.
func CheckFreed(dir, run string, need int64) error {
	steps, err := list(dir)
	there := ""
	for _, s := range steps {
		path := filepath.Join(dir, s.name)
		m, err := complete(path)
		if err != nil || !m.belongsTo(run) {
			continue
		}
		there = s.name
		for _, f := range m.files() {
			if !system.Locked(filepath.Join(path, manifestName)) {
				need -= system.Freed(filepath.Join(path, f.Name))
			}
		}
	}
	switch {
	case err != nil || need <= 0:
		return err
	case there == "":
		return syscall.ENOSPC
	}
	return fmt.Errorf("%w for it, also without %s, which therefore stays: files that are open elsewhere, or have other names (hard links), would free nothing", syscall.ENOSPC, there)
}

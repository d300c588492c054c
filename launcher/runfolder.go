package main

// Run folders: the name of a new one, and the claim on the one that a command writes to.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
)

// runsFolder holds the runs that were started without --out.
const runsFolder = "runs"

// runClaim is the exclusive claim of this process on the folder that it writes to. The zero claim
// claims nothing: it is that of rank processes, whose launcher has the claim, and of dry runs.
type runClaim struct {
	wanted bool
	warn   io.Writer
	folder string
	lock   *system.FolderLock
}

// take claims a folder, which it creates if necessary.
func (c *runClaim) take(folder string) (err error) {
	if !c.wanted {
		return nil
	}
	c.folder = folder
	c.lock, err = system.LockFolder(folder)
	if locked := (*system.LockedError)(nil); errors.As(err, &locked) {
		return fmt.Errorf("%w: wait until it ends, or give another --out", err)
	} else if err != nil {
		return fmt.Errorf("--out %s: %w: give --out a folder that you can write to", folder, err)
	}
	if err := c.lock.Unlocked(); err != nil {
		fmt.Fprintf(c.warn, "launcher: NOTE: the file system of %s has no locks (%v): two runs that are given this folder are not kept apart\n", folder, err)
	}
	return nil
}

// takeExisting is take for a folder that is not created.
func (c *runClaim) takeExisting(folder string) error {
	if stat, err := os.Stat(folder); err != nil || !stat.IsDir() {
		return nil // what reads it reports why it cannot
	}
	return c.take(folder)
}

// takeFree claims the first runs/NAME-N that does not exist.
func (c *runClaim) takeFree(name string) (path string, err error) {
	for n := 1; ; n++ {
		path = filepath.Join(runsFolder, fmt.Sprintf("%s-%d", name, n))
		if _, err := os.Lstat(path); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		err := c.take(path)
		if errors.As(err, new(*system.LockedError)) || err == nil && c.wanted && !c.lock.New() {
			c.release() // another process was faster
			continue
		}
		return path, err
	}
}

// begin prepares the claimed folder for a run that continues from a checkpoint; empty: a new one. A
// new run does not replace the record of an earlier one, and one that continues moves damaged lines
// out of its record. Both are said.
func (c *runClaim) begin(from string) error {
	if err := c.lock.Check(); c.lock == nil || err != nil {
		return err
	}
	if from != "" {
		lines, now, err := record.Repair(c.folder)
		if lines > 0 {
			fmt.Fprintf(c.warn, "launcher: NOTE: the record of %s has %s, now in %s: the run goes on without them\n",
				c.folder, report.Plural(lines, "damaged line"), filepath.Base(now))
		}
		return err
	}
	now, err := record.SetAside(c.folder)
	if err == nil && now != "" {
		fmt.Fprintf(c.warn, "launcher: %s has the record of an earlier run without a checkpoint: it is now %s\n", c.folder, filepath.Base(now))
	}
	return err
}

// release ends the claim, if there is one. The claim ends with the process at the latest.
func (c *runClaim) release() { c.lock.Release() }

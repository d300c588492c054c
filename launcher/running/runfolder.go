package running

// Run folders: the name of a new one, and the claim on the one that a command writes to.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
)

// NewestWhole returns the newest undamaged checkpoint of a run and the configuration in it. It sets
// newer, damaged ones aside and writes a warning to warn.
func NewestWhole(run string, warn io.Writer) (path string, config []byte, err error) {
	r, err := checkpoint.Open(run, state.CheckState)
	if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("nothing to resume in %s: %w", run, err)
	} else if err != nil {
		return "", nil, err
	}
	for _, a := range r.SetAside() {
		fmt.Fprintf(warn, "launcher: warning: %v; continuing from %s\n", a, filepath.Base(r.Path()))
	}
	return r.Path(), r.ConfigTOML(), r.Close()
}

// ReadFolder returns the configuration of a folder. For a run or a checkpoint that is its
// config.toml. For a Hugging Face model it returns the defaults of a run with the model of its
// config.json. It reads no weights.
func ReadFolder(path string) (name string, text []byte, from cli.Defaults, err error) {
	name = filepath.Join(path, "config.toml")
	text, err = system.ReadFile(name, stricttoml.MaxSize)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return name, text, cli.TrainDefaults, err
	}
	if _, err := os.Stat(path); err != nil {
		return name, nil, nil, cli.Unknown("inspect: no such folder, and no flavor", path, cli.Flavors())
	}
	if text, err = system.ReadFile(filepath.Join(path, "config.json"), mostConfig); err != nil {
		return name, nil, nil, fmt.Errorf("%w: inspect a flavor (%s), a run, a checkpoint, or a folder with a Hugging Face model's config.json", err, strings.Join(cli.Flavors(), ", "))
	}
	model, _, err := moe.ParseHF(text)
	if err != nil {
		return name, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return name, nil, func(string, int) (config.Config, error) {
		cfg, err := DefaultsOf(model, cli.TrainDefaults)("", 0)
		cfg.Flavor = filepath.Base(filepath.Clean(path))
		return cfg, err
	}, nil
}

// mostConfig is far above the size of a config.json in bytes.
const mostConfig = 1 << 20

// runsFolder holds the runs that were started without --out.
const runsFolder = "runs"

// RunClaim is the exclusive claim of this process on the folder that it writes to. The zero claim
// claims nothing: it is that of rank processes, whose launcher has the claim, and of dry runs.
type RunClaim struct {
	Wanted bool
	Warn   io.Writer
	folder string
	Lock   *system.FolderLock
}

// Take claims a folder, which it creates if necessary.
func (c *RunClaim) Take(folder string) (err error) {
	if !c.Wanted {
		return nil
	}
	c.folder = folder
	c.Lock, err = system.LockFolder(folder)
	if locked := (*system.LockedError)(nil); errors.As(err, &locked) {
		return fmt.Errorf("%w: wait until it ends, or give another --out", err)
	} else if err != nil {
		return fmt.Errorf("--out %s: %w: give --out a folder that you can write to", folder, err)
	}
	if err := c.Lock.Unlocked(); err != nil {
		fmt.Fprintf(c.Warn, "launcher: NOTE: the file system of %s has no locks (%v): two runs that are given this folder are not kept apart\n", folder, err)
	}
	return nil
}

// TakeExisting is take for a folder that is not created.
func (c *RunClaim) TakeExisting(folder string) error {
	if stat, err := os.Stat(folder); err != nil || !stat.IsDir() {
		return nil // what reads it reports why it cannot
	}
	return c.Take(folder)
}

// TakeFree claims the first runs/NAME-N that does not exist.
func (c *RunClaim) TakeFree(name string) (path string, err error) {
	for n := 1; ; n++ {
		path = filepath.Join(runsFolder, fmt.Sprintf("%s-%d", name, n))
		if _, err := os.Lstat(path); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		err := c.Take(path)
		if errors.As(err, new(*system.LockedError)) || err == nil && c.Wanted && !c.Lock.New() {
			c.Release() // another process was faster
			continue
		}
		return path, err
	}
}

// Begin prepares the claimed folder for a run that continues from a checkpoint; empty: a new one. A
// new run does not replace the record of an earlier one.
func (c *RunClaim) Begin(from string) error {
	if err := c.Lock.Check(); c.Lock == nil || err != nil {
		return err
	}
	if from != "" {
		return nil
	}
	now, err := record.SetAside(c.folder)
	if err == nil && now != "" {
		fmt.Fprintf(c.Warn, "launcher: %s has the record of an earlier run without a checkpoint: it is now %s\n", c.folder, filepath.Base(now))
	}
	return err
}

// Release ends the claim, if there is one. The claim ends with the process at the latest.
func (c *RunClaim) Release() { c.Lock.Release() }

// NewestUnverified returns the newest checkpoint of a run under way and the configuration in it. It
// neither verifies nor changes anything.
func NewestUnverified(run string) (path string, config []byte, err error) {
	if path, err = checkpoint.Latest(run); err == nil {
		config, err = system.ReadFile(filepath.Join(path, "config.toml"), stricttoml.MaxSize)
	}
	return path, config, err
}

// NewestRun returns the folder in runs/ that was changed last and has a checkpoint. advice says how
// to name another one.
func NewestRun(advice string) (string, error) {
	entries, err := system.ReadDir(runsFolder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	newest, path := int64(-1), ""
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		run := filepath.Join(runsFolder, e.Name())
		if _, err := checkpoint.Latest(run); err == nil && info.ModTime().UnixNano() > newest {
			newest, path = info.ModTime().UnixNano(), run
		}
	}
	if path == "" {
		return "", fmt.Errorf("no run with a checkpoint in %s: %s", runsFolder, advice)
	}
	return path, nil
}

package convergence

// The runs of a decomposition: a recipe on the baseline's routes, and the baseline on the recipe's.

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// onRoutesOf returns r with the routes of another recipe in place of its own.
func (r Recipe) onRoutesOf(other Recipe) Recipe {
	r.Name, r.routes = r.Name+"@"+other.Name, other.Name
	return r
}

// withCrossed returns recipes, the baseline first, and the crossed recipes of a decomposition.
func (c *Comparison) withCrossed(recipes []Recipe) []Recipe {
	all := append([]Recipe(nil), recipes...)
	if c.Decompose {
		for _, r := range recipes[1:] {
			all = append(all, r.onRoutesOf(recipes[0]), recipes[0].onRoutesOf(r))
		}
	}
	return all
}

// setRoutes makes a run record its routes or replay those of another recipe with the same seed.
func (c *Comparison) setRoutes(r Recipe, cfg *trainer.Config) {
	switch {
	case r.routes != "":
		cfg.RecordRoutes = false
		cfg.ReplayRoutes = filepath.Join(c.folder(r.routes, cfg.Seed), trainer.RoutesFile)
	case c.Decompose && !r.Ablation:
		cfg.RecordRoutes = true
	}
}

// routeFiles orders runs by the files of routes that pass between them. A file is deleted after its
// last use, because it may be larger than all else that a run leaves.
type routeFiles struct {
	keep     bool
	recorded map[string]chan struct{} // by path; closed when the run that records it has finished

	held *system.FolderLock // the comparison's folder

	mu   sync.Mutex
	uses map[string]int // runs that still have to replay a file
}

// newRouteFiles takes the tasks that are to be run. Each follows those whose routes it replays.
func (c *Comparison) newRouteFiles(tasks []task) *routeFiles {
	f := &routeFiles{keep: c.Config.RecordRoutes, held: c.Held, recorded: map[string]chan struct{}{}, uses: map[string]int{}}
	for _, t := range tasks {
		if t.recipe.routes != "" {
			f.uses[t.cfg.ReplayRoutes]++
		} else {
			f.recorded[filepath.Join(t.cfg.Out, trainer.RoutesFile)] = make(chan struct{})
		}
	}
	return f
}

// wait waits for the routes that a run replays.
func (f *routeFiles) wait(ctx context.Context, t task) error {
	if t.recipe.routes != "" {
		select {
		case <-f.recorded[t.cfg.ReplayRoutes]:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return trainer.ErrInterrupted
	}
	return nil
}

// finished says that a run has succeeded.
func (f *routeFiles) finished(t task) error {
	if t.recipe.routes == "" {
		close(f.recorded[filepath.Join(t.cfg.Out, trainer.RoutesFile)])
		return nil
	}
	path := t.cfg.ReplayRoutes
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.uses[path]--; f.uses[path] > 0 || f.keep {
		return nil
	}
	if err := f.held.Check(); err != nil {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

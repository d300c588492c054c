package checkpoint

// Falling back: a run whose newest checkpoint is damaged continues from the previous one, and keeps
// the damaged one for diagnosis.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Aside is a damaged checkpoint that was renamed.
type Aside struct {
	Path, Now string // its old and its new path
	Err       error  // what is wrong with it
}

// String implements [fmt.Stringer].
func (a Aside) String() string {
	return fmt.Sprintf("%v; it was set aside as %s", a.Err, filepath.Base(a.Now))
}

// openRun opens the newest intact checkpoint of the run folder dir, and sets aside the newer ones,
// which are damaged. Errors other than damage, such as a version that this program does not know,
// end the search, because the state may be intact.
func openRun(dir string, checks []func(*Reader) error) (*Reader, error) {
	var aside []Aside
	none := fmt.Errorf("not a spmoe checkpoint, nor a run that has one: %s: %w", dir, ErrNone)
	for {
		steps, err := list(dir)
		if err != nil {
			return nil, err
		}
		if len(steps) == 0 {
			return nil, none
		}
		path := filepath.Join(dir, steps[0].name)
		r, err := openStep(path, true, checks)
		if err == nil {
			r.aside = aside
			return r, nil
		}
		if errors.Is(err, os.ErrNotExist) { // another process has renamed or pruned it
			continue
		}
		if !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		now, renamed := setAside(path)
		switch {
		case errors.Is(renamed, os.ErrNotExist):
		case renamed != nil:
			return nil, fmt.Errorf("%w; to continue from the previous checkpoint, it must be set aside: %w", err, renamed)
		default:
			aside = append(aside, Aside{path, now, err})
			none = fmt.Errorf("%w; %v", none, aside[len(aside)-1])
		}
	}
}

// setAside renames a damaged checkpoint to the first free name that readers and writers ignore.
func setAside(path string) (now string, err error) {
	now = path + badSuffix
	for n := 2; ; n++ {
		if _, err := os.Lstat(now); errors.Is(err, os.ErrNotExist) {
			return now, os.Rename(path, now)
		} else if err != nil {
			return "", err
		}
		now = fmt.Sprintf("%s%s-%d", path, badSuffix, n)
	}
}

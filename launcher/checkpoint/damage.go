package checkpoint

// Damage of a checkpoint itself, as opposed to temporary failures to read it.

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrDamaged marks errors about a checkpoint that differs from what was written: part of it is
// missing, truncated, changed, or can no longer be read from the disk. Its files do not hold a
// complete state of a run.
var ErrDamaged = errors.New("damaged checkpoint")

// damage marks an error as ErrDamaged without changing its text.
type damage struct{ error }

func (d damage) Is(target error) bool { return target == ErrDamaged }
func (d damage) Unwrap() error        { return d.error }

func damagef(format string, args ...any) error { return damage{fmt.Errorf(format, args...)} }

// unreadable marks a read error as damage if the disk has lost the data.
func unreadable(err error) error {
	if errors.Is(err, syscall.EIO) {
		return damage{err}
	}
	return err
}

package checkpoint

// What is wrong with a checkpoint itself, in contrast to what keeps it from being read now.

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrDamaged is what errors are that say that a checkpoint is not what was written: part of it is
// missing, cut short, changed, or cannot be read from the disk any more. Its files hold no whole
// state of a run.
var ErrDamaged = errors.New("damaged checkpoint")

// damage makes an error one of ErrDamaged, in its own words.
type damage struct{ error }

func (d damage) Is(target error) bool { return target == ErrDamaged }
func (d damage) Unwrap() error        { return d.error }

func damagef(format string, args ...any) error { return damage{fmt.Errorf(format, args...)} }

// unreadable makes a read error damage if the disk has lost the data.
func unreadable(err error) error {
	if errors.Is(err, syscall.EIO) {
		return damage{err}
	}
	return err
}

package calls

import (
	"errors"
	"fmt"
	"runtime"
)

// ErrMemory is the error of a call that needs more memory than there is.
var ErrMemory = errors.New("out of memory")

// guarded calls f and returns its panic as an error. Packages panic on operands that do not fit
// together, and their messages say what is wrong. A panic of Go's runtime is a defect of ours.
func guarded(f func() error) (err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("a defect of spmoe, please report it: %w", problem)
		default:
			err = fmt.Errorf("%v", problem)
		}
	}()
	return f()
}

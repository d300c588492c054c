// Package spmd starts the ranks of a job: one program, run by every rank on its own data.
package spmd

import (
	"fmt"
	"runtime/debug"

	"spmoe/collective"
)

// Run runs body on n ranks, one goroutine each, and waits for all of them. A rank that returns
// an error or panics ends the job: the others get an error that names it from their next
// collective. Run returns the first failure, with its rank.
func Run(n int, body func(c *collective.Comm) error) error {
	return collective.NewWorld(n).Run(func(c *collective.Comm) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		return body(c)
	})
}

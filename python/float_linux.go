package main

// The floating-point environment of the threads that compute. A host program may flush subnormal
// numbers to zero, as torch.set_flush_denormal does, or round in another direction. A thread
// inherits this from its creator, and results would have other bits.
//
// Each call sets the default environment on its thread, and restores that of the caller. The
// threads of the Go runtime descend from the one that its initialization creates. So the library
// sets the default environment before that initialization and restores it afterwards. Constructors
// with a priority run before those without one, and Go's has none.

/*
#cgo LDFLAGS: -lm
#include <fenv.h>

static fenv_t at_load;

__attribute__((constructor(101))) static void before_go(void) {
	fegetenv(&at_load);
	fesetenv(FE_DFL_ENV);
}

__attribute__((constructor)) static void after_go(void) { fesetenv(&at_load); }

static void use_default(fenv_t *saved) {
	fegetenv(saved);
	fesetenv(FE_DFL_ENV);
}

static void restore(fenv_t *saved) { fesetenv(saved); }
*/
import "C"

// environment is that of the caller.
type environment struct{ saved C.fenv_t }

// useDefault sets the default floating-point environment and returns that of the caller. The
// goroutine of a call from C stays on the thread of the call.
func useDefault() *environment {
	e := &environment{}
	C.use_default(&e.saved)
	return e
}

func (e *environment) restore() { C.restore(&e.saved) }

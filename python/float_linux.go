package main

// The floating-point environment of the threads that compute. A host program may flush subnormal
// numbers to zero, as torch.set_flush_denormal does, or round in another direction. A thread
// inherits this from its creator, and results would have other bits.
//
// Each call sets the default environment on its thread, and restores that of the caller. The
// threads of the Go runtime descend from the one that its initialization creates. So constructors
// set the environment before that initialization, which has no priority, and restore it afterwards.

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

// useDefault sets the default floating-point environment and returns a function that restores that
// of the caller. The goroutine of a call from C stays on the thread of the call.
func useDefault() (restore func()) {
	saved := &C.fenv_t{}
	C.use_default(saved)
	return func() { C.restore(saved) }
}

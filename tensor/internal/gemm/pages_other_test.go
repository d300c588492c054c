//go:build !linux

package gemm

import "testing"

// largePages is memory, on pages of whatever size.
func largePages(_ *testing.B, n int) []byte { return make([]byte, n) }

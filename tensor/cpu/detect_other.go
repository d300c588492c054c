//go:build (!amd64 && !arm64) || purego

package cpu

// detect finds nothing: this build has no assembly.
func detect() Features { return Features{} }

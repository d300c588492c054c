//go:build (amd64 || arm64) && !purego

package cpu

import "github.com/klauspost/cpuid/v2"

// supports reports whether this CPU has a feature.
func supports(f cpuid.FeatureID) bool { return cpuid.CPU.Supports(f) }

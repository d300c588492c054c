//go:build !linux

package tensor

func adviseLargePages([]byte) {}

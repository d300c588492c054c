//go:build !unix

package system

import (
	"errors"
	"os"
)

func lockExclusive(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }

// LockShared does nothing.
func LockShared(*os.File) {}

// Locked returns false.
func Locked(string) bool { return false }

// identityOf returns nothing: files are compared with [os.SameFile] alone.
func identityOf(os.FileInfo) string { return "" }

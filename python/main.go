// Package python is the C shared library behind spmoe.py: products and formats for NumPy and
// PyTorch programs.
//
//	go build -buildmode=c-shared -o python/libspmoe.so ./python
//
// It needs Linux and a C compiler. Without one, the package is an empty program.
package main

func main() {}

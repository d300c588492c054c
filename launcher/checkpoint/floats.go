//go:build amd64 || arm64 || 386 || arm || loong64 || riscv64 || ppc64le || mips64le || mipsle || wasm

package checkpoint

// Float data as the bytes of a shard, without a copy: shards are little-endian, as are all machines
// in the build tag.

import "unsafe"

// bytesOf returns the memory of x as little-endian bytes, with its capacity.
func bytesOf(x []float32) []byte {
	const size = 4
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), cap(x)*size)[:len(x)*size]
}

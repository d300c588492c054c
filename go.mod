module spmoe

go 1.26.0

require (
	github.com/apache/arrow/go/v17 v17.0.0 // indirect
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	github.com/pelletier/go-toml/v2 v2.4.3 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

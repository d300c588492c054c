module spmoe

go 1.26.0

require (
	github.com/apache/arrow/go/v17 v17.0.0
	github.com/klauspost/cpuid/v2 v2.4.2
	github.com/pelletier/go-toml/v2 v2.4.3
	golang.org/x/sync v0.24.0
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sys v0.49.0 // indirect

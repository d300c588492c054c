package running

import (
	"fmt"
	"io"

	"spmoe/datasets"
)

// PrintBuiltinText says which text a command without --data reads.
func PrintBuiltinText(out io.Writer, data []string) {
	if len(data) == 0 {
		fmt.Fprintf(out, "text: %s\n", datasets.DescribeBuiltin())
	}
}

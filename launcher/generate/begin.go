package generate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
)

// tokenizerConfig is the file of a Hugging Face model that names, among other things, its first
// token.
const tokenizerConfig = "tokenizer_config.json"

// mostConfig bounds its size in bytes.
const mostConfig = 16 << 20

// Beginning returns the special token that the prompts of a Hugging Face model must begin with, as
// text. It is empty if there is none, or no tokenizer_config.json in the folder.
func Beginning(folder string) (string, error) {
	path := filepath.Join(folder, tokenizerConfig)
	data, err := system.ReadFile(path, mostConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var c struct {
		Add   bool `json:"add_bos_token"`
		Token any  `json:"bos_token"` // text, or an object whose content is the text
	}
	if err == nil {
		err = strictjson.Unmarshal(data, &c)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if object, ok := c.Token.(map[string]any); ok {
		c.Token = object["content"]
	}
	text, _ := c.Token.(string)
	if c.Add && text == "" {
		return "", fmt.Errorf("%s: add_bos_token is true, but bos_token is neither a text nor an object with one", path)
	}
	if !c.Add {
		return "", nil
	}
	return text, nil
}

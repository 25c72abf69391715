package configfile

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns a JSON Schema (draft 2020-12) of the file, with what each member means, so that editors
// complete and explain it: the file names it as its member "$schema". It does not have all rules:
// [File.Config] checks more.
func Schema() []byte { return slices.Clone(schema) }

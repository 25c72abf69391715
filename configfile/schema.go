package configfile

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns a JSON Schema (draft 2020-12) of the file, with what each member means, so that editors complete and
// explain it: a file names the schema in its member "$schema". [File.Config] checks more rules than the schema has.
func Schema() []byte { return slices.Clone(schema) }

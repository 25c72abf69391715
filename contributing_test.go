package ampcors_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
)

// TestEachReasonAndEachFieldIsWhereCONTRIBUTINGSays checks the files of two rows of the table of what to add.
func TestEachReasonAndEachFieldIsWhereCONTRIBUTINGSays(t *testing.T) {
	t.Parallel()
	contributing, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	var reasons, denials, fields []string
	for r := ampcors.ReasonOwnOrigin; r.String() != ampcors.Reason(0).String(); r++ {
		if reasons = append(reasons, r.String()); !r.Allowed() {
			denials = append(denials, "`"+r.String()+"`")
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[ampcors.Config]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			fields = append(fields, name)
		}
	}
	for _, test := range []struct {
		row, file string
		words     []string
	}{
		{"a reason", "reason.go", reasons},
		{"a reason", "decision_test.go", reasons},
		{"a reason", "conformance/origins.json", reasons},
		{"a reason", "docs/requests.md", denials},
		{"a reason", "docs/OPERATIONS.md", denials},
		{"a field of Config", "config.go", fields},
		{"a field of Config", "configfile/schema.json", fields},
		{"a field of Config", "configfile/configfile_test.go", fields},
	} {
		if !regexp.MustCompile(`(?m)^\| ` + test.row + ` \|.*\]\(` + regexp.QuoteMeta(test.file) + `\)`).Match(contributing) {
			t.Errorf("CONTRIBUTING's row of %s does not name %s", test.row, test.file)
		}
		text, err := os.ReadFile(test.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range test.words {
			if test.row == "a field of Config" { // a word may be there for another reason
				word = `"` + word
			}
			if !strings.Contains(string(text), word) {
				t.Errorf("%s does not have %s", test.file, word)
			}
		}
	}
}

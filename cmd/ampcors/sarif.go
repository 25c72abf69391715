package main

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/ampcors/ampcors/probe"
)

// A sarifResult is a result of SARIF 2.1.0, https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html, as
// far as GitHub's code scanning reads it. It wants a file as the location. The file of a finding is the path of its
// endpoint.
type sarifResult struct {
	RuleID    string          `json:"ruleId"`
	Level     string          `json:"level"`
	Message   sarifText       `json:"message"`
	Locations []sarifLocation `json:"locations"`
	// GitHub takes two results with the same fingerprint for the same.
	Fingerprints map[string]string `json:"partialFingerprints"`
	Suppressions []sarifAccepted   `json:"suppressions,omitempty"` // of a known finding
}

type (
	sarifText struct {
		Text string `json:"text"`
	}
	sarifAccepted struct {
		Kind string `json:"kind"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
		} `json:"physicalLocation"`
	}
	sarifRule struct {
		ID    string    `json:"id"`
		Short sarifText `json:"shortDescription"`
		Help  sarifText `json:"help"`
	}
)

// writeSARIF writes findings for a code scanning service. What was not tested is a notification of the tool.
func writeSARIF(w io.Writer, report *runReport) error {
	rules, results, untested := []sarifRule{}, []sarifResult{}, []any{}
	levels := map[probe.Severity]string{probe.High: "error", probe.Medium: "warning", probe.Low: "note"}
	for _, f := range report.Findings {
		id := string(f.ID)
		if !slices.ContainsFunc(rules, func(r sarifRule) bool { return r.ID == id }) {
			rules = append(rules, sarifRule{id, sarifText{f.Title}, sarifText{f.Remedy}})
		}
		r := sarifResult{RuleID: id, Level: levels[f.Severity], Locations: make([]sarifLocation, 1),
			Message: sarifText{f.Request + ": " + f.Title + "\n" + strings.Join(f.Evidence, "\n") + "\n" + f.Remedy},
			Fingerprints: map[string]string{"ampcors/v1": strings.Join([]string{id, f.Method, f.Endpoint, f.Call, f.Subject()},
				" ")}}
		_, path, _ := strings.Cut(f.Endpoint, "://")
		path, _, _ = strings.Cut(path, "?")
		r.Locations[0].Physical.Artifact.URI = strings.ReplaceAll(path, ":", "_") // a colon would make the host a scheme
		if f.Known {
			r.Suppressions = []sarifAccepted{{"external"}}
		}
		results = append(results, r)
	}
	for _, u := range report.Untested {
		untested = append(untested, map[string]any{"level": "warning",
			"message": sarifText{"not tested: " + u.Endpoint + ": " + reasonOf(u)}})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"runs": []any{map[string]any{
			"tool": map[string]any{"driver": map[string]any{"name": "ampcors probe",
				"informationUri": "https://github.com/ampcors/ampcors", "rules": rules}},
			"invocations": []any{map[string]any{"executionSuccessful": len(report.Trials) > 0,
				"toolExecutionNotifications": untested}},
			"results": results,
		}}})
}

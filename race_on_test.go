//go:build race

package ampcors_test

const raceEnabled = true

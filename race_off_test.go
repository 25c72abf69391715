//go:build !race

package ampcors_test

const raceEnabled = false

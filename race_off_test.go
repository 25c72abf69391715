//go:build !race

package ampcors

const raceEnabled = false

package main

import (
	"testing"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

func TestStack(t *testing.T) { stacktest.RunHTTP(t, wrapped, nil, group, stacktest.Limits{}) }

package main

import (
	"strings"
	"testing"
)

const sample = `go: go1.0
date: 2000-01-02
processors: 2
goos: linux
goarch: amd64
cpu: A Processor
BenchmarkSerial/case=allowed/publishers=1/lib=floor-2    100  80.0 ns/op  64 B/op  1 allocs/op
BenchmarkSerial/case=allowed/publishers=1/lib=ampcors-2  100  100 ns/op   64 B/op  1 allocs/op
BenchmarkSerial/case=allowed/publishers=1/lib=ampcors-2  100  300 ns/op   64 B/op  1 allocs/op
BenchmarkSerial/case=allowed/publishers=1/lib=ampcors-2  100  120.4 ns/op 64 B/op  1 allocs/op
BenchmarkSerial/case=allowed/publishers=1/lib=rs-2       100  15700 ns/op 64 B/op  1 allocs/op
BenchmarkSerial/case=allowed/publishers=1/lib=rs-2       100  15800 ns/op 64 B/op  1 allocs/op
BenchmarkSerial/case=refused/publishers=10000/lib=ampcors-2            100  90 ns/op
BenchmarkSerial/case=refused/publishers=10000/lib=ampcorsReportOnly-2  100  70 ns/op
BenchmarkNew/publishers=1000000/lib=chi  1  2500000000 ns/op
BenchmarkEndToEnd/case=allowed/lib=none     1  1080000 req/s
BenchmarkEndToEnd/case=allowed/lib=ampcors  1  987654 req/s
`

func TestTablesShowMedians(t *testing.T) {
	res, err := read(strings.NewReader(sample), "sample")
	if err != nil {
		t.Fatal(err)
	}
	got := res.tables()
	for _, want := range []string{
		"Machine: A Processor, 2 processors, go1.0, 2000-01-02.\n",
		"\n| allowed, 1 publisher | 120 ns | – | 15.8 µs | – |\n",
		"\n| refused and passed on, 10,000 publishers | 70.0 ns | – | – | – |\n",
		"\n| refused with 403, 10,000 publishers | 90.0 ns | – | – | – |\n",
		"\n| 1,000,000 publishers | – | – | – | 2.50 s |\n",
		"\n| allowed | 987,654 | – | – | – |\n",
		"sets the same headers takes 80.0 ns.",
		"A server without any of them answers 1,080,000 requests a second.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the tables lack %q:\n%s", want, got)
		}
	}
}

func TestOnlyWhatStandsBetweenTheCommentsIsReplaced(t *testing.T) {
	got, err := replace([]byte("a\n"+begin+"old\n"+end+"b\n"), "new\n")
	if err != nil || string(got) != "a\n"+begin+"new\n"+end+"b\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"a\n", "a\n" + begin, end + begin} {
		if _, err := replace([]byte(text), "new\n"); err == nil {
			t.Errorf("%q is taken for a file with both comments", text)
		}
	}
}

func TestResultsWithoutABenchmarkAreAnError(t *testing.T) {
	if _, err := read(strings.NewReader("ok\tampcors\n"), "empty"); err == nil {
		t.Error("no error")
	}
}
